//! What an instance remembers: a field, and what happened to it.

use std::cell::RefCell;

use crate::form;

#[derive(Default)]
struct State {
    memory: Vec<u8>,
    seen: Vec<Vec<u8>>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// The field, after it was set where there is a value.
pub fn memory(value: Option<Vec<u8>>) -> Vec<u8> {
    STATE.with_borrow_mut(|state| {
        if let Some(value) = value {
            state.memory = value;
        }
        state.memory.clone()
    })
}

/// Notes an event.
pub fn note<I: AsRef<[u8]>>(event: impl IntoIterator<Item = I>) {
    let event = form::list(event);
    STATE.with_borrow_mut(|state| state.seen.push(event));
}

/// The events so far, oldest first.
pub fn seen() -> Vec<Vec<u8>> {
    STATE.with_borrow(|state| state.seen.clone())
}
