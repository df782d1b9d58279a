//! Faults on purpose, by the option `{"break": "NAME"}`: each is of a kind that SDKs and bindings have had, and the tests of the suite say which case
//! has to find it.
//!
//! | name | what is wrong |
//! |---|---|
//! | `swallow-errors` | an error of the host is a success without values |
//! | `drop-raise` | `raise`, and `!`, reply |
//! | `one-code` | each error has the code `error` |
//! | `no-message` | errors have no message |
//! | `final-errors` | no error can be retried |
//! | `trap-on-error` | an error of the host traps |
//! | `abort-is-error` | `abort` is an error |
//! | `throw-swallowed` | an exception is a success, and the script goes on |
//! | `recursion-ends` | `recurse` comes to an end |
//! | `memory-ends` | `allocate` takes nothing |
//! | `loop-is-error` | `spin` is an error |
//! | `pages-joined` | two pages come as one |
//! | `empty-is-none` | an empty value reads as none |
//! | `empty-option` | an empty routing key, start or end is none |
//! | `text-keys` | keys are made valid UTF-8 |
//! | `text-values` | values end at their first zero byte |
//! | `short-values` | values end at 65,535 bytes |
//! | `32-bit` | seqs are cut to 32 bits |
//! | `sorted` | `get-many` replies in the order of the keys |
//! | `ascending` | every scan ascends |
//! | `open-start` | the start of a range is exclusive |
//! | `no-end` | the end of a range is left out |
//! | `ttl-lost` | nothing expires |
//! | `ttl-seconds` | a time to live is taken for seconds |
//! | `no-batch` | a batch is written one by one |
//! | `batch-backwards` | the operations of a batch are in the wrong order |
//! | `snapshot-is-live` | a snapshot shows what is written later |
//! | `writes-through` | what a transaction writes is written at once |
//! | `never-serializable` | each transaction is of snapshot isolation |
//! | `lost-commit` | a commit says that all is well, and is none |
//! | `drop-commits` | a transaction that is dropped is committed |
//! | `keep-handles` | nothing is given back before the call ends |
//! | `tags-backwards`, `tags-twice`, `tags-lost` | tags that became durable |
//! | `memory-lost` | `suspend` gives nothing |
//! | `resume-errors-lost` | an error of `resume` is swallowed |
//! | `migrated-at-once` | the first step of a migration says true |
//! | `start-errors-lost` | an error of `start` is swallowed |
//! | `stop-lost` | `stop` does nothing |
//! | `options-unchecked` | all options are valid |
//! | `fire-errors-lost` | an error of `fire` is swallowed |
//! | `due-now` | a timer's moment is when it fired |
//! | `timers-volatile` | durable timers are volatile |
//! | `applied` | each reply is sent when it is applied |
//! | `header-lost` | there are no headers |
//! | `query-writes` | a query gets the success of a write that it did not make |

use std::cell::OnceCell;

use crate::bindings::quarry::shard::shard;

thread_local! {
    static FAULT: OnceCell<String> = const { OnceCell::new() };
}

/// Whether the guest is broken in this way.
pub fn broken(name: &str) -> bool {
    FAULT.with(|fault| fault.get_or_init(|| named(&shard::options())) == name)
}

/// The name in the options, without a parser of JSON: the suite writes them.
fn named(options: &str) -> String {
    let rest = options.split_once("\"break\":");
    let quoted = rest.and_then(|(_, rest)| rest.split('"').nth(1));
    quoted.unwrap_or_default().to_owned()
}
