//! What engines report, documents print and stores keep, in one type each: the CPU time of a side, and results of measurements between hosts.
//!
//! A crate of its own so that engines need no database and documents no sockets. Types, and arithmetic on them.
#![forbid(unsafe_code)]

pub mod http;
pub mod iperf3;
pub mod net;
pub mod stamp;

use serde::{Deserialize, Serialize};

/// CPU time of one side between two readings, by several clocks, and what disturbed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUsage {
    /// CLOCK_PROCESS_CPUTIME_ID.
    pub process_ns: u64,
    /// CLOCK_THREAD_CPUTIME_ID of the measuring thread.
    pub thread_ns: u64,
    /// getrusage user time.
    pub user_ns: u64,
    /// getrusage system time.
    pub system_ns: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
    /// Minor and major page faults.
    pub page_faults: u64,
    /// 1 when the thread ended on another CPU than it began on.
    pub migrations: u64,
}

/// An enumeration of words: each variant with its word in JSON, on the command line and in text.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// Its word.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
use words;
