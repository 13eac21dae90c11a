//! Study `gigabit`: why a host does not fill its link, after Weigle, Feng & Gardner (2001).

experiments! {
    window_bdp,
    mtu_path,
    host_peak,
    host_buffers,
    host_coalescing,
    host_tweaks,
    host_mtu,
}
