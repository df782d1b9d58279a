//! What a request leaves behind in the table of WASI's resources.
//!
//! Requests, answers, headers, bodies and their streams belong to the call in which they came up, and end with it. Some languages drop
//! what they hold late, or never: the place of something that has ended stays taken until the guest drops it, so that a late
//! drop finds it and never something newer, and only the latest few thousand are kept so.

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};

use wasmtime::component::{Linker, Resource, ResourceTable, ResourceType};
use wasmtime_wasi::WasiView;
use wasmtime_wasi::p2::bindings::io::{poll, streams};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable};
use wasmtime_wasi_http::p2::bindings::http::types::{self, RequestOptions};
use wasmtime_wasi_http::p2::body::{HostFutureTrailers, HostIncomingBody, HostOutgoingBody};
use wasmtime_wasi_http::p2::types::{
    HostFutureIncomingResponse, HostIncomingRequest, HostIncomingResponse, HostOutgoingRequest,
    HostOutgoingResponse, HostResponseOutparam,
};
use wasmtime_wasi_http::{FieldMap, WasiHttpView};

use super::super::state::State;

/// Places that are kept for late drops.
const PLACES_MAX: usize = 4096;
/// Handles of what has ended that a guest may keep for good; each takes some bytes of the host.
const HANDLES_MAX: usize = 1 << 20;

/// The guest keeps handles for ever.
#[derive(Debug, thiserror::Error)]
#[error(
    "it keeps {HANDLES_MAX} handles of HTTP requests, answers, headers, bodies or streams that have ended; drop them"
)]
pub(in crate::guest::wasm) struct TooManyHandles;

/// In the place of what has ended.
struct Ended;

/// The places of what has ended.
#[derive(Debug, Default)]
pub(in crate::guest::wasm) struct Places {
    /// The oldest first.
    kept: VecDeque<u32>,
    /// Handles whose place is gone.
    lost: usize,
}

impl Places {
    /// How many are taken.
    pub(in crate::guest::wasm) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Ends all that is of HTTP. Returns at once where there is nothing.
    pub(in crate::guest::wasm) fn end_all(
        &mut self,
        table: &mut ResourceTable,
    ) -> Result<(), TooManyHandles> {
        if !table.iter_mut().any(|entry| is_of_http(entry)) {
            return Ok(());
        }
        let mut ending = belonging(table);
        // A parent goes after its children.
        while !ending.is_empty() {
            let before = ending.len();
            ending.retain(|key| !self.end(table, *key));
            if ending.len() == before {
                break;
            }
        }
        while self.kept.len() > PLACES_MAX {
            if let Some(oldest) = self.kept.pop_front() {
                _ = table.delete::<Ended>(Resource::new_own(oldest));
                self.lost += 1;
            }
        }
        if self.lost > HANDLES_MAX {
            return Err(TooManyHandles);
        }
        Ok(())
    }

    /// Ends one, and keeps its place; false while it has children.
    fn end(&mut self, table: &mut ResourceTable, key: u32) -> bool {
        let Ok(entry) = table.get_any_mut(key) else {
            return true;
        };
        let ended = if entry.is::<HostOutgoingBody>() {
            // One that is not finished is cut short, and does not look whole.
            let body = table.delete::<HostOutgoingBody>(Resource::new_own(key));
            body.map(HostOutgoingBody::abort).is_ok()
        } else {
            // Whatever it is: that it is of another type is found out when it is gone.
            _ = table.delete::<Ended>(Resource::new_own(key));
            table.get_any_mut(key).is_err()
        };
        if ended && let Ok(place) = table.push(Ended) {
            // The table gives a place that has just become free to the next.
            debug_assert_eq!(place.rep(), key);
            self.kept.push_back(place.rep());
        }
        ended
    }

    /// A guest drops a handle; whether that was of something that has ended.
    fn dropped(&mut self, table: &mut ResourceTable, key: u32) -> bool {
        match table.get_any_mut(key) {
            Ok(entry) if entry.is::<Ended>() => {
                _ = table.delete::<Ended>(Resource::new_own(key));
                if let Some(at) = self.kept.iter().position(|kept| *kept == key) {
                    self.kept.remove(at);
                }
                true
            }
            Ok(_) => false,
            Err(_) => {
                let was_lost = self.lost > 0;
                self.lost = self.lost.saturating_sub(1);
                was_lost
            }
        }
    }
}

/// The keys of all that is of HTTP: what has a type of it, and the streams and pollables that hang on such.
fn belonging(table: &mut ResourceTable) -> Vec<u32> {
    let mut left = table.iter_mut().count();
    let (mut keys, mut of_http) = (Vec::new(), Vec::new());
    for key in 0..u32::MAX {
        if left == 0 {
            break;
        }
        if let Ok(entry) = table.get_any_mut(key) {
            left -= 1;
            if entry.is::<Ended>() {
                continue;
            }
            keys.push((key, address(entry)));
            if is_of_http(entry) {
                of_http.push(key);
            }
        }
    }
    // The table tells a parent's children, and not their keys.
    let mut found: BTreeSet<u32> = of_http.iter().copied().collect();
    while let Some(parent) = of_http.pop() {
        let Ok(children) = table.iter_children::<Ended>(&Resource::new_borrow(parent)) else {
            continue;
        };
        let children: BTreeSet<usize> = children.map(|child| address(child)).collect();
        // Most have none, and there may be many.
        if children.is_empty() {
            continue;
        }
        for (key, at) in &keys {
            if children.contains(at) && found.insert(*key) {
                of_http.push(*key);
            }
        }
    }
    found.into_iter().collect()
}

fn address(entry: &dyn Any) -> usize {
    std::ptr::from_ref(entry).cast::<()>().addr()
}

fn is_of_http(entry: &dyn Any) -> bool {
    entry.is::<FieldMap>()
        || entry.is::<HostIncomingRequest>()
        || entry.is::<HostOutgoingRequest>()
        || entry.is::<RequestOptions>()
        || entry.is::<HostResponseOutparam>()
        || entry.is::<HostIncomingResponse>()
        || entry.is::<HostIncomingBody>()
        || entry.is::<HostFutureTrailers>()
        || entry.is::<HostOutgoingResponse>()
        || entry.is::<HostOutgoingBody>()
        || entry.is::<HostFutureIncomingResponse>()
}

const TYPES: &str = "wasi:http/types@0.2.12";
const STREAMS: &str = "wasi:io/streams@0.2.12";
const POLL: &str = "wasi:io/poll@0.2.12";

/// Has late drops find their places: each destructor looks there first, and is then what it is without this.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    macro_rules! of_http {
        ($($name:literal: $type:ty => $host:ident;)*) => {
            $(linker.instance(TYPES)?.resource($name, ResourceType::host::<$type>(), |mut store, rep| {
                let state: &mut State = store.data_mut();
                if state.dropped_ended(rep) {
                    return Ok(());
                }
                types::$host::drop(&mut state.http(), Resource::new_own(rep))
            })?;)*
        };
    }
    linker.allow_shadowing(true);
    of_http! {
        "fields": FieldMap => HostFields;
        "incoming-request": HostIncomingRequest => HostIncomingRequest;
        "outgoing-request": HostOutgoingRequest => HostOutgoingRequest;
        "request-options": RequestOptions => HostRequestOptions;
        "response-outparam": HostResponseOutparam => HostResponseOutparam;
        "incoming-response": HostIncomingResponse => HostIncomingResponse;
        "incoming-body": HostIncomingBody => HostIncomingBody;
        "future-trailers": HostFutureTrailers => HostFutureTrailers;
        "outgoing-response": HostOutgoingResponse => HostOutgoingResponse;
        "outgoing-body": HostOutgoingBody => HostOutgoingBody;
        "future-incoming-response": HostFutureIncomingResponse => HostFutureIncomingResponse;
    }
    linker.instance(POLL)?.resource(
        "pollable",
        ResourceType::host::<DynPollable>(),
        |mut store, rep| {
            let state: &mut State = store.data_mut();
            if state.dropped_ended(rep) {
                return Ok(());
            }
            poll::HostPollable::drop(state.ctx().table, Resource::new_own(rep))
        },
    )?;
    linker.instance(STREAMS)?.resource_async(
        "input-stream",
        ResourceType::host::<DynInputStream>(),
        |mut store, rep| {
            Box::new(async move {
                let state: &mut State = store.data_mut();
                if state.dropped_ended(rep) {
                    return Ok(());
                }
                streams::HostInputStream::drop(state.ctx().table, Resource::new_own(rep)).await
            })
        },
    )?;
    linker.instance(STREAMS)?.resource_async(
        "output-stream",
        ResourceType::host::<DynOutputStream>(),
        |mut store, rep| {
            Box::new(async move {
                let state: &mut State = store.data_mut();
                if state.dropped_ended(rep) {
                    return Ok(());
                }
                streams::HostOutputStream::drop(state.ctx().table, Resource::new_own(rep)).await
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

impl State {
    /// Whether a handle that is dropped is of something that has ended.
    fn dropped_ended(&mut self, key: u32) -> bool {
        let (places, table) = self.places();
        places.dropped(table, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(table: &mut ResourceTable) -> u32 {
        table.push(FieldMap::new_mutable(100)).expect("room").rep()
    }

    #[test]
    fn what_is_of_http_ends_and_the_rest_stays() {
        let (mut table, mut places) = (ResourceTable::new(), Places::default());
        let other = table.push("stdout").expect("room").rep();
        let (body, _rest) = HostOutgoingBody::new(
            wasmtime_wasi_http::p2::body::StreamContext::Response,
            None,
            1,
            1,
        );
        let body = table.push(body).expect("room");
        let stream: DynOutputStream = table
            .get_mut(&body)
            .expect("a body")
            .take_output_stream()
            .expect("a stream");
        let stream = table.push_child(stream, &body).expect("room");
        let pollable = wasmtime_wasi::p2::subscribe(
            &mut table,
            Resource::<DynOutputStream>::new_borrow(stream.rep()),
        )
        .expect("room");
        let map = fields(&mut table);
        places.end_all(&mut table).expect("few");
        assert_eq!(places.len(), 4);
        assert!(table.get_any_mut(other).expect("kept").is::<&str>());
        for key in [body.rep(), stream.rep(), pollable.rep(), map] {
            assert!(table.get_any_mut(key).expect("a place").is::<Ended>());
            assert!(places.dropped(&mut table, key), "late");
            assert!(!places.dropped(&mut table, key), "only once");
        }
        assert_eq!((places.len(), table.iter_mut().count()), (0, 1));
        assert!(!places.dropped(&mut table, other));
    }

    #[test]
    fn what_nobody_drops_does_not_add_up() {
        let (mut table, mut places) = (ResourceTable::new(), Places::default());
        for _ in 0..PLACES_MAX + 1000 {
            fields(&mut table);
            places.end_all(&mut table).expect("few");
        }
        assert_eq!(table.iter_mut().count(), PLACES_MAX);
        assert_eq!(places.lost, 1000);
        places.lost = HANDLES_MAX;
        fields(&mut table);
        assert!(places.end_all(&mut table).is_err());
    }
}
