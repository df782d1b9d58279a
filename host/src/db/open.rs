//! Opens and closes the database of a shard.
