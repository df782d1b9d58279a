//! The model of a shard's SlateDB database: a manifest with a writer epoch, and a log of create-if-absent slots in which a new writer
//! puts a fence before it reads. What SlateDB promises holds here too: nobody appends behind the fence of a newer writer, and whoever
//! opens with an expected epoch gets exactly the next one or nothing.

/// One slot of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The writer epoch of the writer that filled it.
    pub epoch: u64,
    pub content: Content,
}

/// What lies in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Fence,
    /// A write of the register: its value, which no other write has.
    Write(u64),
}

/// A refused step: a newer writer is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fenced;

/// One database.
#[derive(Debug, Clone, Default)]
pub struct Database {
    epoch: u64,
    fence: u64,
    log: Vec<Slot>,
}

impl Database {
    /// The writer epoch in the manifest; 0 when nobody ever opened it.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Raises the manifest's writer epoch from `read` by one; another opener may have been first.
    pub fn raise(&mut self, read: u64) -> Result<u64, Fenced> {
        if self.epoch != read {
            return Err(Fenced);
        }
        self.epoch += 1;
        Ok(self.epoch)
    }

    /// Puts the fence of `epoch` at the end of the log.
    pub fn fence(&mut self, epoch: u64) -> Result<(), Fenced> {
        self.append(epoch, Content::Fence)?;
        self.fence = epoch;
        Ok(())
    }

    /// Appends writes of the writer of `epoch`; the position of the last is the log's length after it.
    pub fn append(&mut self, epoch: u64, content: Content) -> Result<u64, Fenced> {
        if self.fence > epoch {
            return Err(Fenced);
        }
        self.log.push(Slot { epoch, content });
        Ok(self.log.len() as u64)
    }

    /// The position of the last write and its value, as an opener replays them; position 0 is the empty register.
    pub fn replay(&self) -> (u64, u64) {
        self.log
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, slot)| match slot.content {
                Content::Write(value) => Some((index as u64 + 1, value)),
                Content::Fence => None,
            })
            .unwrap_or((0, 0))
    }

    /// The whole log.
    pub fn log(&self) -> &[Slot] {
        &self.log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_appends_behind_a_newer_fence_and_the_opener_reads_what_came_before() {
        let mut database = Database::default();
        let old = database.raise(0).unwrap();
        database.fence(old).unwrap();
        assert_eq!(database.append(old, Content::Write(7)), Ok(2));
        let new = database.raise(old).unwrap();
        assert_eq!(database.raise(old), Err(Fenced), "somebody was first");
        // Raised, but not fenced yet: the old writer still gets in, and the new one will read it.
        assert_eq!(database.append(old, Content::Write(8)), Ok(3));
        database.fence(new).unwrap();
        assert_eq!(database.append(old, Content::Write(9)), Err(Fenced));
        assert_eq!(database.fence(old), Err(Fenced));
        assert_eq!(database.replay(), (3, 8));
        assert_eq!(database.epoch(), 2);
    }
}
