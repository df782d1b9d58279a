//! What a case expects of a result, and whether it is so.

use super::form;
use super::script::Memo;

/// What a step has to give.
#[derive(Debug, Clone)]
pub(super) enum Expect {
    /// These values.
    Ok(Vec<Value>),
    /// Success, and values of which this holds.
    That(&'static str, fn(&[Vec<u8>]) -> bool),
    /// An error with this code, whose message has this text, and this flag.
    Err(&'static str, &'static str, bool),
    /// Success with these tags, of all durable events so far.
    Tags(Vec<u64>),
    /// Success with these events, of those whose name is this. Each begins with these values.
    Events(&'static str, Vec<Vec<Value>>),
    /// Success with this memory where the last failure was an error, and with none where it was a trap.
    MemoryUnlessTrapped(&'static str),
    /// Whatever it is.
    Any,
    /// Anything but this.
    Not(Box<Expect>),
}

/// A value of a result.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A number.
    Number,
    /// A number, kept under a name.
    Save(&'static str),
    /// A number as an option that is there, kept under a name.
    SaveSome(&'static str),
    /// Bytes that are kept under a name.
    Keep(&'static str),
    /// Other bytes than those that were kept.
    Other(&'static str),
    /// A number that is larger than the one that was saved.
    Above(&'static str),
    /// What was saved.
    Saved(&'static str),
    /// What was saved, as an option that is there.
    SavedSome(&'static str),
    /// The newest write that the reply of the call shows.
    Newest,
    /// Text with this in it.
    Has(&'static str),
    /// Whatever it is.
    Any,
}

/// A guest's result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Success.
    Ok(Vec<Vec<u8>>),
    /// The host's error.
    Err {
        code: String,
        message: String,
        retryable: bool,
    },
}

impl Answer {
    /// Reads a result; none where it is none.
    pub(super) fn read(item: &[u8]) -> Option<Self> {
        let mut items = form::items(item)?.into_iter();
        let kind = items.next()?;
        let rest: Vec<Vec<u8>> = items.collect();
        match (kind.as_slice(), rest.as_slice()) {
            (b"ok", values) => Some(Self::Ok(values.to_vec())),
            (b"err", [code, message, retryable]) => Some(Self::Err {
                code: String::from_utf8(code.clone()).ok()?,
                message: String::from_utf8(message.clone()).ok()?,
                retryable: match retryable.as_slice() {
                    b"0" => false,
                    b"1" => true,
                    _ => return None,
                },
            }),
            _ => None,
        }
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Ok(values) if values.is_empty() => "ok".into(),
            Self::Ok(values) => {
                let shown: Vec<_> = values
                    .iter()
                    .take(12)
                    .map(|value| form::shown(value))
                    .collect();
                let more = match values.len().saturating_sub(shown.len()) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!("ok {}{more}", shown.join(" "))
            }
            Self::Err {
                code,
                message,
                retryable,
            } => {
                let retryable = if *retryable { ", retryable" } else { "" };
                format!("the error {code} ({message}{retryable})")
            }
        }
    }
}

/// What a result is compared with beside the expectation.
pub(super) struct Known<'a> {
    /// What was saved; more is saved here.
    pub(super) memo: &'a mut Memo,
    /// The newest write that the reply shows.
    pub(super) newest: u64,
    /// Whether the last call that failed trapped.
    pub(super) trapped: bool,
}

impl Expect {
    /// Whether a result is as expected; keeps what it has to keep.
    ///
    /// # Errors
    /// What was expected, in words.
    pub(super) fn check(&self, answer: &Answer, known: &mut Known<'_>) -> Result<(), String> {
        let met = match (self, answer) {
            (Self::Any, _) => true,
            (Self::Not(expected), answer) => expected.check(answer, known).is_err(),
            (Self::Ok(expected), Answer::Ok(values)) => all(expected, values, known),
            (Self::That(_, holds), Answer::Ok(values)) => holds(values),
            (
                Self::Err(code, says, retryable),
                Answer::Err {
                    code: found,
                    message,
                    retryable: found_retryable,
                },
            ) => found == code && message.contains(says) && found_retryable == retryable,
            (Self::Tags(expected), Answer::Ok(events)) => {
                tags(events).is_some_and(|tags| tags == *expected)
            }
            (Self::Events(name, expected), Answer::Ok(events)) => {
                let found = named(events, name);
                found.is_some_and(|found| {
                    found.len() == expected.len()
                        && expected.iter().zip(&found).all(|(expected, found)| {
                            found.len() > expected.len()
                                && all(expected, &found[1..=expected.len()], known)
                        })
                })
            }
            (Self::MemoryUnlessTrapped(expected), Answer::Ok(values)) => {
                let expected = if known.trapped { "" } else { expected };
                matches!(values.as_slice(), [value] if value == expected.as_bytes())
            }
            _ => false,
        };
        if met { Ok(()) } else { Err(self.shown(known)) }
    }

    fn shown(&self, known: &Known<'_>) -> String {
        match self {
            Self::Ok(values) if values.is_empty() => "ok".into(),
            Self::Ok(values) => {
                let shown: Vec<_> = values
                    .iter()
                    .take(12)
                    .map(|value| value.shown(known))
                    .collect();
                format!("ok {}", shown.join(" "))
            }
            Self::That(what, _) => (*what).to_owned(),
            Self::Err(code, says, retryable) => {
                let retryable = if *retryable {
                    "retryable"
                } else {
                    "not retryable"
                };
                format!("the error {code}, {retryable}, that says {says:?}")
            }
            Self::Tags(tags) => format!("the durable tags {tags:?}"),
            Self::Events(name, events) => {
                let shown = events.iter().map(|event| {
                    let values: Vec<_> = event.iter().map(|value| value.shown(known)).collect();
                    format!("({name} {})", values.join(" "))
                });
                format!(
                    "{} events `{name}`: {}",
                    events.len(),
                    shown.collect::<Vec<_>>().join(" ")
                )
            }
            Self::MemoryUnlessTrapped(memory) if known.trapped => {
                format!("no memory: the instance of {memory:?} trapped")
            }
            Self::MemoryUnlessTrapped(memory) => {
                format!("the memory {memory:?}: an error leaves the instance as it is")
            }
            Self::Any => "anything".into(),
            Self::Not(expected) => format!("anything but {}", expected.shown(known)),
        }
    }
}

impl Value {
    fn check(&self, found: &[u8], known: &mut Known<'_>) -> bool {
        let saved = |name: &str| known.memo.get(name).cloned().unwrap_or_default();
        match self {
            Self::Bytes(bytes) => found == bytes,
            Self::Number => form::number(found).is_some(),
            Self::Save(name) => {
                known.memo.insert(name, found.to_vec());
                form::number(found).is_some()
            }
            Self::SaveSome(name) => {
                let number = found.strip_prefix(b"+").unwrap_or_default();
                known.memo.insert(name, number.to_vec());
                form::number(number).is_some()
            }
            Self::Keep(name) => {
                known.memo.insert(name, found.to_vec());
                true
            }
            Self::Other(name) => found != saved(name),
            Self::Above(name) => form::number(found) > form::number(&saved(name)),
            Self::Saved(name) => found == saved(name),
            Self::SavedSome(name) => found == form::some(saved(name)),
            Self::Newest => form::number(found) == Some(known.newest),
            Self::Has(text) => String::from_utf8_lossy(found).contains(text),
            Self::Any => true,
        }
    }

    fn shown(&self, known: &Known<'_>) -> String {
        let saved = |name: &str| {
            let saved = known.memo.get(name).map(|saved| form::shown(saved));
            saved.unwrap_or_else(|| format!("<{name}>"))
        };
        match self {
            Self::Bytes(bytes) => form::shown(bytes),
            Self::Number | Self::Save(_) => "a number".into(),
            Self::SaveSome(_) => "some number".into(),
            Self::Keep(_) => "anything".into(),
            Self::Other(name) => format!("anything but {}", saved(name)),
            Self::Above(name) => format!("a number over {}", saved(name)),
            Self::Saved(name) => saved(name),
            Self::SavedSome(name) => format!("some {}", saved(name)),
            Self::Newest => format!("the reply's newest write, {}", known.newest),
            Self::Has(text) => format!("text with {text:?}"),
            Self::Any => "anything".into(),
        }
    }
}

fn all(expected: &[Value], found: &[Vec<u8>], known: &mut Known<'_>) -> bool {
    expected.len() == found.len()
        && expected
            .iter()
            .zip(found)
            .all(|(expected, found)| expected.check(found, known))
}

/// The events of a name, their names included; none where one of them is no event.
fn named(events: &[Vec<u8>], name: &str) -> Option<Vec<Vec<Vec<u8>>>> {
    let mut found = Vec::new();
    for event in events {
        let event = form::items(event)?;
        if event.first()? == name.as_bytes() {
            found.push(event);
        }
    }
    Some(found)
}

/// The tags of all durable events, in their order.
fn tags(events: &[Vec<u8>]) -> Option<Vec<u64>> {
    let events = named(events, "durable")?;
    let tags = events.iter().flat_map(|event| &event[1..]);
    tags.map(|tag| form::number(tag)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(values: &[&[u8]]) -> Answer {
        Answer::Ok(values.iter().map(|value| value.to_vec()).collect())
    }

    fn check(expect: &Expect, answer: &Answer) -> bool {
        let mut memo = Memo::from([("seq", b"7".to_vec())]);
        let mut known = Known {
            memo: &mut memo,
            newest: 9,
            trapped: false,
        };
        expect.check(answer, &mut known).is_ok()
    }

    #[test]
    fn values_are_compared() {
        for (value, good, bad) in [
            (Value::Bytes(b"a".to_vec()), &b"a"[..], &b"b"[..]),
            (Value::Number, b"12", b"x"),
            (Value::Save("x"), b"12", b""),
            (Value::Above("seq"), b"8", b"7"),
            (Value::Saved("seq"), b"7", b"8"),
            (Value::SavedSome("seq"), b"+7", b"7"),
            (Value::SaveSome("x"), b"+7", b"7"),
            (Value::Other("seq"), b"8", b"7"),
            (Value::Newest, b"9", b"8"),
            (Value::Has("b"), b"abc", b"ac"),
        ] {
            let expect = Expect::Ok(vec![value]);
            assert!(check(&expect, &ok(&[good])), "{expect:?}");
            assert!(!check(&expect, &ok(&[bad])), "{expect:?}");
            assert!(!check(&expect, &ok(&[good, good])), "{expect:?}");
            assert!(!check(&expect, &ok(&[])), "{expect:?}");
        }
    }

    #[test]
    fn errors_are_compared_whole() {
        let answer = Answer::Err {
            code: "limit".into(),
            message: "over limits.key".into(),
            retryable: true,
        };
        for (expect, met) in [
            (Expect::Err("limit", "limits.key", true), true),
            (Expect::Err("limit", "", true), true),
            (Expect::Err("closed", "", true), false),
            (Expect::Err("limit", "limits.value", true), false),
            (Expect::Err("limit", "", false), false),
            (Expect::Ok(vec![]), false),
            (Expect::Any, true),
        ] {
            assert_eq!(check(&expect, &answer), met, "{expect:?}");
        }
        assert!(!check(&Expect::Err("limit", "", true), &ok(&[])));
    }

    #[test]
    fn events_are_those_of_a_name() {
        let events = [
            form::list(["start"]),
            form::list(["durable", "1", "2"]),
            form::list(["fire", "a", "p", "5"]),
            form::list(["durable", "3"]),
        ];
        let seen = Answer::Ok(events.to_vec());
        let a = || vec![Value::Bytes(b"a".to_vec())];
        for (expect, met) in [
            (Expect::Tags(vec![1, 2, 3]), true),
            (Expect::Tags(vec![1, 3, 2]), false),
            (Expect::Tags(vec![1, 2]), false),
            (Expect::Events("fire", vec![a()]), true),
            (Expect::Events("fire", vec![]), false),
            (Expect::Events("fire", vec![a(), a()]), false),
            (Expect::Events("start", vec![vec![]]), true),
            (Expect::Events("resume", vec![]), true),
        ] {
            assert_eq!(check(&expect, &seen), met, "{expect:?}");
        }
    }

    #[test]
    fn what_is_no_result_is_none() {
        for (item, expected) in [
            (form::list(["ok"]), Some(ok(&[]))),
            (form::list(["ok", "1"]), Some(ok(&[b"1"]))),
            (form::list(["okay"]), None),
            (form::list(["err", "code", "message"]), None),
            (form::list(["err", "code", "message", "yes"]), None),
            (Vec::new(), None),
            (b"x".to_vec(), None),
        ] {
            assert_eq!(Answer::read(&item), expected, "{item:?}");
        }
    }
}
