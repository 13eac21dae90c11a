//! Measures mechanisms between fresh processes, one of which does all the timing.
//!
//! `launcher` is the orchestrator's side; `worker` and `peer` are the two processes of a launch. `mirror` is a launch whose
//! peer is a network stack, `streams` one of many connections, `page_load` one of a web page; `supervisor` starts the far
//! process on another host.
#![forbid(unsafe_code)]

/// Gives an enum without data the names that plans and results use: `ALL` in this order, `name`, `from_name`; where a
/// second text stands behind each name, `summary`; and of a `list` neither of these two.
macro_rules! names {
    (list $type:ident { $($variant:ident = $name:literal),* $(,)? }) => {
        impl $type {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name used in plans and results.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
    ($type:ident { $($variant:ident = $name:literal),* $(,)? }) => {
        names!(list $type { $($variant = $name),* });

        impl $type {
            /// The one of a name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|known| known.name() == name)
            }
        }
    };
    ($type:ident { $($variant:ident = $name:literal: $summary:literal),* $(,)? }) => {
        names!($type { $($variant = $name),* });

        impl $type {
            /// One line for people.
            pub const fn summary(self) -> &'static str {
                match self { $(Self::$variant => $summary),* }
            }
        }
    };
}

mod bench;
mod channel;
pub mod child_process;
pub mod doctor;
pub mod effort;
pub mod environment;
pub mod host_costs;
pub mod launch_network;
mod launch_protocol;
pub mod launcher;
pub mod mechanisms;
pub mod mirror;
pub mod page_load;
pub mod peer;
mod peer_handle;
pub mod program_task;
pub mod report;
pub mod spec;
pub mod streams;
pub mod supervisor;
pub mod topology;
pub mod trace;
pub mod worker;

/// Requests to stop and to report (Ctrl-C, SIGTERM, SIGUSR1), counted instead of obeyed at once.
pub mod stop_signals {
    pub use plumb_sys::signal::{
        count_status_requests, count_stop_requests, handle_file_size_limit, status_requests,
        stop_requests,
    };
}
