//! Holds an instance to its memory.

use wasmtime::ResourceLimiter;

/// The most elements of one table; CPython, the largest guest known, has some 20,000 functions in one.
pub(super) const TABLE_MAX_ELEMENTS: usize = 100_000;
/// The most linear memories of one component.
pub(super) const MEMORIES_MAX: u32 = 8;
/// The most tables of one component: a module has one, the adapter's shim another.
pub(super) const TABLES_MAX: u32 = 32;
/// The most core instances of one component: dynamically linked ones (Python) have one for each library.
pub(super) const CORE_INSTANCES_MAX: u32 = 128;

/// Counts the linear memory of an instance, all of its memories together.
pub(super) struct Limiter {
    limit: u64,
    used: u64,
    /// The last growth, to take it back when it fails after it was granted.
    last: u64,
    refused: Option<u64>,
}

impl Limiter {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, used: 0, last: 0, refused: None }
    }

    /// The limit, in bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// The memory that the guest wanted to have when it was last refused more since the last [`Limiter::forget`].
    pub(super) fn refused(&self) -> Option<u64> {
        self.refused
    }

    /// Begins a call: what was refused before is no reason for what goes wrong in it.
    pub(super) fn forget(&mut self) {
        self.refused = None;
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current) as u64;
        let wanted = self.used.saturating_add(growth);
        if wanted > self.limit || maximum.is_some_and(|maximum| desired > maximum) {
            self.refused = Some(wanted);
            return Ok(false);
        }
        self.used = wanted;
        self.last = growth;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.used = self.used.saturating_sub(std::mem::take(&mut self.last));
        Ok(())
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_MAX_ELEMENTS)
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_MAX as usize
    }

    fn tables(&self) -> usize {
        TABLES_MAX as usize
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memories_of_an_instance_count() {
        let mut limiter = Limiter::new(100);
        // (current, desired, maximum, granted, refused)
        for (step, (current, desired, maximum, granted, refused)) in [
            (0, 40, None, true, None),
            (0, 40, None, true, None),
            (40, 70, None, false, Some(110)),
            (40, 60, None, true, Some(110)),
            (60, 61, None, false, Some(101)),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(limiter.memory_growing(current, desired, maximum).expect("no trap"), granted, "step {step}");
            assert_eq!(limiter.refused(), refused, "step {step}");
        }
        limiter.forget();
        assert_eq!(limiter.refused(), None);
    }

    #[test]
    fn a_failed_growth_is_taken_back() {
        let mut limiter = Limiter::new(100);
        assert!(limiter.memory_growing(0, 80, None).expect("no trap"));
        limiter.memory_grow_failed(wasmtime::Error::msg("mmap failed")).expect("no trap");
        assert!(limiter.memory_growing(0, 100, None).expect("no trap"));
    }
}
