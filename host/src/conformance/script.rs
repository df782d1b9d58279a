//! Scripts as the suite writes them: a step is a command with its arguments. What a step saves, later ones can name.

use std::collections::BTreeMap;

use super::form;

/// What was saved of earlier results, by name.
pub(super) type Memo = BTreeMap<&'static str, Vec<u8>>;

/// A command and its arguments.
#[derive(Debug, Clone)]
pub(super) struct Step {
    command: String,
    args: Vec<Arg>,
}

/// An argument.
#[derive(Debug, Clone)]
pub(super) enum Arg {
    /// These bytes.
    Bytes(Vec<u8>),
    /// What was saved under a name.
    Saved(&'static str),
    /// A script.
    Script(Vec<Step>),
}

/// A step.
pub(super) fn step<const N: usize>(command: &str, args: [Arg; N]) -> Step {
    Step {
        command: command.to_owned(),
        args: args.into(),
    }
}

/// What was saved under a name.
pub(super) fn saved(name: &'static str) -> Arg {
    Arg::Saved(name)
}

/// An option that is there.
pub(super) fn option(value: impl AsRef<[u8]>) -> Arg {
    Arg::Bytes(form::some(value))
}

impl Step {
    /// On a snapshot or a transaction, and not on the database.
    pub(super) fn on(mut self, handle: u64) -> Self {
        self.args[0] = handle.into();
        self
    }

    /// Its error ends the call.
    pub(super) fn or_fail(mut self) -> Self {
        self.command.insert(0, '!');
        self
    }

    /// With further arguments.
    pub(super) fn with<A: Into<Arg>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The command.
    pub(super) fn command(&self) -> &str {
        self.command.trim_start_matches('!')
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        let mut text = self.command.clone();
        for arg in &self.args {
            text.push(' ');
            match arg {
                Arg::Bytes(bytes) => text.push_str(&form::shown(bytes)),
                Arg::Saved(name) => text.push_str(&format!("<{name}>")),
                Arg::Script(steps) => {
                    let steps: Vec<_> = steps.iter().map(Self::shown).collect();
                    text.push_str(&format!("[{}]", steps.join("; ")));
                }
            }
        }
        text
    }
}

/// A script as the guest gets it.
pub(super) fn script(steps: &[Step], memo: &Memo) -> Vec<u8> {
    form::list(steps.iter().map(|step| {
        let args = step.args.iter().map(|arg| match arg {
            Arg::Bytes(bytes) => bytes.clone(),
            // A case that names what it did not save fails at what the guest makes of it.
            Arg::Saved(name) => memo.get(name).cloned().unwrap_or_default(),
            Arg::Script(steps) => script(steps, memo),
        });
        form::list(std::iter::once(step.command.clone().into_bytes()).chain(args))
    }))
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<&[u8]> for Arg {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl<const N: usize> From<&[u8; N]> for Arg {
    fn from(bytes: &[u8; N]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<Vec<u8>> for Arg {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<u64> for Arg {
    fn from(number: u64) -> Self {
        Self::Bytes(number.to_string().into())
    }
}

impl From<Vec<Step>> for Arg {
    fn from(steps: Vec<Step>) -> Self {
        Self::Script(steps)
    }
}

impl<const N: usize> From<[Step; N]> for Arg {
    fn from(steps: [Step; N]) -> Self {
        Self::Script(steps.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_a_list_of_steps() {
        let memo = Memo::from([("seq", b"7".to_vec())]);
        let steps = [
            step("a", ["x".into(), 5.into(), saved("seq")]),
            step("b", [option(""), [step("c", [])].into()]).or_fail(),
        ];
        let inner = form::list([form::list(["c"])]);
        let expected = form::list([
            form::list(["a", "x", "5", "7"]),
            form::list([b"!b".to_vec(), b"+".to_vec(), inner]),
        ]);
        assert_eq!(script(&steps, &memo), expected);
        assert_eq!(steps[1].shown(), "!b \"+\" [c]");
    }
}
