//! The experiments, their plans, and the run that carries them out.
//!
//! What lies outside a measurement, the link that plumb runs behind and another host, is passed in
//! as [`surroundings::Surroundings`].
#![forbid(unsafe_code)]

/// Declares the experiments of a study: each is a module with a static `EXPERIMENT`.
macro_rules! study {
    ($(#[$about:meta])* $study:ident: $($name:ident),* $(,)?) => {
        $(#[$about])*
        pub mod $study {
            $(pub mod $name;)*

            /// Every experiment of this study.
            pub static EXPERIMENTS: &[&crate::definition::Experiment] = &[$(&$name::EXPERIMENT),*];
        }
    };
}

study! {
    /// Study `ipc`: interprocess communication, after Zhao (2014).
    ipc:
    clock_resolution,
    call_kernel,
    latency_local,
    throughput_local,
    latency_remote,
    throughput_remote,
    path_length,
    tcp_options,
    udp_large,
    reliability,
    fec_vs_arq,
}

study! {
    /// Study `stack`: the user-level stack beside Linux's, after Kjellerstedt (1997).
    stack:
    mirror_rtt,
    stack_time,
    stack_checksum,
    stack_replay,
    stack_contention,
    breakdown_local,
}

study! {
    /// Study `gigabit`: why a host does not fill its link, after Weigle, Feng & Gardner (2001).
    gigabit:
    window_bdp,
    cc_utilisation,
    mtu_path,
    host_peak,
    host_buffers,
    host_coalescing,
    host_tweaks,
    host_mtu,
    host_interrupt,
    host_model,
    nic_memory,
    flood_host,
    unresponsive,
    punish,
}

study! {
    /// Study `distributed`: what makes a distributed application slow, after Lantz, Nowicki & Theimer (1985).
    distributed:
    stack_errors,
    stack_timeouts,
    stack_buffers,
    stack_chunk,
    stack_pollution,
    stack_nic,
    stack_remote,
    display_vector,
    display_rect,
    display_memory,
    display_text,
    display_cpu,
    display_transport,
    display_priority,
    display_link,
    link_users,
}

study! {
    /// Study `scaling`: whether communication keeps up with processors, after Markatos (2001).
    scaling:
    index_cpu,
    index_memory,
    scaling_entry,
    scaling_loopback,
    scaling_lan,
    scaling_wan,
    scaling_http,
    scaling_files,
    scaling_smp,
}

#[cfg(test)]
mod analysis_tests;
mod claims;
mod codes;
pub mod definition;
pub mod display;
pub mod error;
pub mod factor;
pub mod list;
pub mod machines;
pub mod mirror;
mod pages;
pub mod plan;
mod prelude;
pub mod preset;
pub mod run;
pub mod segment_capture;
pub mod selftest;
pub mod simulation;
pub mod surroundings;
pub mod transfer;
