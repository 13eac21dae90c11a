//! Other programs' protocols on plumb's engines: iperf3, STAMP (RFC 8762, RFC 8972) and HTTP/1.1, HTTP/2 and HTTP/3.

#![forbid(unsafe_code)]

pub mod http;
pub mod iperf3;
pub mod stamp;
