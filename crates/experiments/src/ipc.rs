//! Study `ipc`: interprocess communication, after Zhao (2014).

experiments! {
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
}
