//! The exports of the component: from the host's calls to the guest's trait.

use std::cell::RefCell;
use std::thread::LocalKey;

use crate::bindings::handler::quarry::shard::{current_call, types};
use crate::call::{Call, Reply};
use crate::guest::{Guest, StopReason};
use crate::timers::Timer;

/// The guest of this instance.
pub type Instance<G> = LocalKey<RefCell<G>>;

/// A guest as the host finds it: made when it is first called.
pub fn instance<G: Guest>() -> RefCell<G> {
    crate::logger::install();
    RefCell::new(G::default())
}

pub fn call<G: Guest>(
    guest: &'static Instance<G>,
    method: String,
    key: Option<Vec<u8>>,
    payload: Vec<u8>,
) -> Result<Vec<u8>, types::Error> {
    hand_over(guest.with_borrow_mut(|guest| guest.call(Call::new(method, key, payload))))
}

pub fn query<G: Guest>(
    guest: &'static Instance<G>,
    method: String,
    key: Option<Vec<u8>>,
    payload: Vec<u8>,
) -> Result<Vec<u8>, types::Error> {
    hand_over(guest.with_borrow(|guest| guest.query(Call::new(method, key, payload))))
}

pub fn start<G: Guest>(guest: &'static Instance<G>) -> Result<(), types::Error> {
    guest
        .with_borrow_mut(|guest| guest.start())
        .map_err(Into::into)
}

pub fn stop<G: Guest>(guest: &'static Instance<G>, reason: String) {
    guest.with_borrow_mut(|guest| guest.stop(StopReason::from(reason)));
}

pub fn durable<G: Guest>(guest: &'static Instance<G>, tags: Vec<u64>) {
    guest.with_borrow_mut(|guest| guest.durable(tags));
}

pub fn fire<G: Guest>(
    guest: &'static Instance<G>,
    name: String,
    payload: Vec<u8>,
    due_ms: u64,
) -> Result<(), types::Error> {
    guest
        .with_borrow_mut(|guest| guest.fire(Timer::new(name, payload, due_ms)))
        .map_err(Into::into)
}

pub fn suspend<G: Guest>(guest: &'static Instance<G>) -> Result<Vec<u8>, types::Error> {
    guest
        .with_borrow_mut(|guest| guest.suspend())
        .map_err(Into::into)
}

pub fn resume<G: Guest>(
    guest: &'static Instance<G>,
    from_revision: u64,
    state: Vec<u8>,
) -> Result<(), types::Error> {
    guest
        .with_borrow_mut(|guest| guest.resume(from_revision, state))
        .map_err(Into::into)
}

pub fn migrate<G: Guest>(
    guest: &'static Instance<G>,
    from_revision: u64,
) -> Result<bool, types::Error> {
    guest
        .with_borrow_mut(|guest| guest.migrate(from_revision))
        .map_err(Into::into)
}

/// `_guest` only names the type: no guest is made to check options.
pub fn validate<G: Guest>(_guest: &'static Instance<G>, options: &str) -> Result<(), String> {
    crate::logger::install();
    G::validate(options)
}

fn hand_over(reply: crate::Result<Reply>) -> Result<Vec<u8>, types::Error> {
    let reply = reply?;
    if let Some(media_type) = reply.media_type() {
        current_call::set_content_type(media_type);
    }
    if reply.is_applied() {
        current_call::reply_when_applied();
    }
    Ok(reply.into_payload())
}

/// The wiring of a guest into the component.
#[doc(hidden)]
#[macro_export]
macro_rules! __component {
    ($guest:ty; $($export:ident)*) => {
        const _: () = {
            use $crate::__private::{bindings, component};

            ::std::thread_local! {
                static INSTANCE: ::std::cell::RefCell<$guest> = component::instance::<$guest>();
            }

            struct Component;

            impl bindings::handler::exports::quarry::shard::handler::Guest for Component {
                fn call(
                    method: ::std::string::String,
                    key: ::core::option::Option<::std::vec::Vec<u8>>,
                    payload: ::std::vec::Vec<u8>,
                ) -> ::core::result::Result<::std::vec::Vec<u8>, bindings::handler::quarry::shard::types::Error> {
                    component::call(&INSTANCE, method, key, payload)
                }
            }
            $crate::__private::bindings::handler::export!(
                Component with_types_in $crate::__private::bindings::handler
            );
            $($crate::__component_export!($export);)*
        };
    };
}

/// The wiring of one optional export.
#[doc(hidden)]
#[macro_export]
macro_rules! __component_export {
    (queries) => {
        impl bindings::queries::exports::quarry::shard::queries::Guest for Component {
            fn query(
                method: ::std::string::String,
                key: ::core::option::Option<::std::vec::Vec<u8>>,
                payload: ::std::vec::Vec<u8>,
            ) -> ::core::result::Result<::std::vec::Vec<u8>, bindings::handler::quarry::shard::types::Error> {
                component::query(&INSTANCE, method, key, payload)
            }
        }
        $crate::__private::bindings::queries::export!(
            Component with_types_in $crate::__private::bindings::queries
        );
    };
    (lifecycle) => {
        impl bindings::lifecycle::exports::quarry::shard::lifecycle::Guest for Component {
            fn start() -> ::core::result::Result<(), bindings::handler::quarry::shard::types::Error> {
                component::start(&INSTANCE)
            }
            fn stop(reason: ::std::string::String) {
                component::stop(&INSTANCE, reason)
            }
        }
        $crate::__private::bindings::lifecycle::export!(
            Component with_types_in $crate::__private::bindings::lifecycle
        );
    };
    (options) => {
        impl bindings::options::exports::quarry::shard::options::Guest for Component {
            fn validate(options: ::std::string::String) -> ::core::result::Result<(), ::std::string::String> {
                component::validate(&INSTANCE, &options)
            }
        }
        $crate::__private::bindings::options::export!(
            Component with_types_in $crate::__private::bindings::options
        );
    };
    (durable_events) => {
        impl bindings::durable_events::exports::quarry::shard::durable_events::Guest for Component {
            fn durable(tags: ::std::vec::Vec<u64>) {
                component::durable(&INSTANCE, tags)
            }
        }
        $crate::__private::bindings::durable_events::export!(
            Component with_types_in $crate::__private::bindings::durable_events
        );
    };
    (timer_events) => {
        impl bindings::timer_events::exports::quarry::shard::timer_events::Guest for Component {
            fn fire(
                name: ::std::string::String,
                payload: ::std::vec::Vec<u8>,
                due_ms: u64,
            ) -> ::core::result::Result<(), bindings::handler::quarry::shard::types::Error> {
                component::fire(&INSTANCE, name, payload, due_ms)
            }
        }
        $crate::__private::bindings::timer_events::export!(
            Component with_types_in $crate::__private::bindings::timer_events
        );
    };
    (handoff) => {
        impl bindings::handoff::exports::quarry::shard::handoff::Guest for Component {
            fn suspend() -> ::core::result::Result<::std::vec::Vec<u8>, bindings::handler::quarry::shard::types::Error> {
                component::suspend(&INSTANCE)
            }
            fn resume(
                from_revision: u64,
                state: ::std::vec::Vec<u8>,
            ) -> ::core::result::Result<(), bindings::handler::quarry::shard::types::Error> {
                component::resume(&INSTANCE, from_revision, state)
            }
        }
        $crate::__private::bindings::handoff::export!(
            Component with_types_in $crate::__private::bindings::handoff
        );
    };
    (migration) => {
        impl bindings::migration::exports::quarry::shard::migration::Guest for Component {
            fn migrate(
                from_revision: u64,
            ) -> ::core::result::Result<bool, bindings::handler::quarry::shard::types::Error> {
                component::migrate(&INSTANCE, from_revision)
            }
        }
        $crate::__private::bindings::migration::export!(
            Component with_types_in $crate::__private::bindings::migration
        );
    };
    // `__name_export` says what is wrong.
    ($other:ident) => {};
}
