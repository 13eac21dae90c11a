//! Study `scaling`: whether communication keeps up with processors, after Markatos (2001).

experiments! {
    scaling_entry,
    scaling_loopback,
    scaling_lan,
    scaling_wan,
    scaling_http,
    scaling_smp,
}
