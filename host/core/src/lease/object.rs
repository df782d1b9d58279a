//! What a store is asked, and what it answers. Whoever carries a request out decides nothing: it translates.

use super::record::NodeName;

/// The largest number of names that one listing answers.
pub const PAGE: u32 = 1000;

/// What the store makes of an object's content: its ETag, its version, or both. Opaque.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The ETag.
    pub e_tag: Option<Box<str>>,
    /// The version, on stores that have them. Listings do not tell it.
    pub version: Option<Box<str>>,
}

impl Tag {
    /// The same as no other tag.
    pub const NOTHING: Self = Self {
        e_tag: None,
        version: None,
    };

    /// A tag that is an ETag only.
    #[must_use]
    pub fn e_tag(e_tag: &str) -> Self {
        Self {
            e_tag: Some(e_tag.into()),
            version: None,
        }
    }

    /// Whether both are of the same content: the ETags decide, or the versions where one has no ETag.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        match (&self.e_tag, &other.e_tag) {
            (Some(a), Some(b)) => a == b,
            _ => self.version.is_some() && self.version == other.version,
        }
    }
}

/// An object below `_quarry/` that leases are made of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A shard's lease.
    Lease(u32),
    /// A node's session.
    Node(NodeName),
}

impl Key {
    /// The object's name below `_quarry/`: `leases/007.json` or `nodes/a.json`. A shard's number has as many digits as in the path
    /// of its database: those of the highest, and at least three.
    #[must_use]
    pub fn object_name(&self, shards: u32) -> String {
        match self {
            Self::Lease(shard) => {
                let digits = digits(shards);
                format!("leases/{shard:0digits$}.json")
            }
            Self::Node(name) => format!("nodes/{name}.json"),
        }
    }

    /// The object that has this name below `_quarry/`; none when no lease and no node has it.
    #[must_use]
    pub fn parse(name: &str, shards: u32) -> Option<Self> {
        let (folder, file) = name.split_once('/')?;
        let stem = file.strip_suffix(".json")?;
        match folder {
            "nodes" => NodeName::new(stem).ok().map(Self::Node),
            "leases" => {
                let plain =
                    stem.len() == digits(shards) && stem.bytes().all(|b| b.is_ascii_digit());
                let shard = plain.then(|| stem.parse::<u32>().ok()).flatten()?;
                (shard < shards).then_some(Self::Lease(shard))
            }
            _ => None,
        }
    }
}

fn digits(shards: u32) -> usize {
    shards.saturating_sub(1).to_string().len().max(3)
}

/// On what condition an object is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// There is none.
    Create,
    /// It still has this tag.
    Match(Tag),
    /// None. **For the simulator only**: a broken rule may ask for it, the correct protocol never does.
    Always,
}

/// A request to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectRequest {
    /// Read an object. A body longer than [`super::record::MAX_BYTES`] may be answered cut after one byte more.
    Get(Key),
    /// List the objects below `_quarry/` whose names come after `after` (empty: from the beginning), in order, at most `limit`.
    List {
        /// The name below `_quarry/` to begin after.
        after: String,
        /// How many to answer, at most [`PAGE`].
        limit: u32,
    },
    /// Write an object on a condition.
    Put {
        /// The object.
        key: Key,
        /// Its body.
        body: Vec<u8>,
        /// The condition.
        condition: Condition,
    },
    /// Read the writer epoch in the manifest of a shard's database; 0 when there is no database yet.
    WriterEpoch {
        /// The shard.
        shard: u32,
    },
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name below `_quarry/`.
    pub name: String,
    /// Its tag, if listings tell it. Without it, bodies are read each time.
    pub tag: Option<Tag>,
    /// The size of its body.
    pub size: u64,
}

/// What the store answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectReply {
    /// To a `Get`: the object.
    Found {
        /// Its tag.
        tag: Tag,
        /// Its body.
        body: Vec<u8>,
    },
    /// To a `Get`: there is none. To a `Put` that must match: there is none either.
    Missing,
    /// To a `List`.
    Listed {
        /// In the order of their names, at most as many as asked for.
        entries: Vec<Entry>,
        /// Whether more come after the last.
        more: bool,
    },
    /// To a `Put`: it was written and has this tag now.
    Written(Tag),
    /// To a `Put`: the store says that the condition does not hold. (It may say so of a write that succeeded and was repeated.)
    Conflict,
    /// To a `WriterEpoch`.
    WriterEpoch(u64),
    /// It failed, timed out, or was never sent.
    Failed {
        /// Whether a write may have been, or may yet be, carried out.
        maybe_applied: bool,
        /// What happened, for people.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_nobodys() {
        let node = |name| Key::Node(NodeName::new(name).unwrap());
        for (key, shards, name) in [
            (Key::Lease(0), 1, "leases/000.json"),
            (Key::Lease(7), 64, "leases/007.json"),
            (Key::Lease(7), 1001, "leases/0007.json"),
            (Key::Lease(65_535), 65_536, "leases/65535.json"),
            (node("a.b-c_D"), 4, "nodes/a.b-c_D.json"),
        ] {
            assert_eq!(key.object_name(shards), name);
            assert_eq!(Key::parse(name, shards), Some(key));
        }
        for name in [
            "",
            "leases/",
            "leases/004.json",
            "leases/7.json",
            "leases/0001.json",
            "leases/+01.json",
            "leases/001.json/x",
            "leases/001.txt",
            "nodes/.json",
            "nodes/.x.json",
            "nodes/a/b.json",
            "nodes/a b.json",
            "modules/001.json",
            "cluster.json",
        ] {
            assert_eq!(Key::parse(name, 4), None, "{name}");
        }
    }

    #[test]
    fn tags_compare_by_what_both_have() {
        let tag = |e_tag: Option<&str>, version: Option<&str>| Tag {
            e_tag: e_tag.map(Into::into),
            version: version.map(Into::into),
        };
        for (a, b, same) in [
            (tag(Some("x"), Some("1")), tag(Some("x"), None), true),
            (tag(Some("x"), Some("1")), tag(Some("y"), Some("1")), false),
            (tag(None, Some("1")), tag(Some("x"), Some("1")), true),
            (tag(None, Some("1")), tag(None, Some("2")), false),
            (tag(None, None), tag(None, None), false),
        ] {
            assert_eq!(a.same(&b), same, "{a:?} {b:?}");
        }
    }
}
