//! What was published: sources, and the order of the local mechanisms.
//!
//! The ranks are those of Zhao's Table 1 without its two remote rows. Left out: figures that the
//! document shows only as graphs.

/// The paper that the study `ipc` re-tests.
pub const ZHAO: &str = "Zhao, TCP, UDP, and Pipes Communication Benchmarking, CS 736, 2014";

/// The document that the claims of study `stack` come from.
pub const KJELLERSTEDT: &str = "Kjellerstedt, Implementing a High Performance TCP/IP Stack, 1997";

/// The paper that the study `gigabit` re-tests.
pub const WEIGLE: &str = "Weigle, Feng & Gardner, Why TCP Will Not Scale for the Next-Generation \
                          Internet, LA-UR-01-1039, 2001";

/// How a host learns what a path takes.
pub const RFC_1191: &str = "Mogul & Deering, Path MTU Discovery, RFC 1191, 1990";

/// What becomes of TCP where it is not told.
pub const RFC_2923: &str = "Lahey, TCP Problems with Path MTU Discovery, RFC 2923, 2000";

/// How packets are cut.
pub const RFC_791: &str = "Postel, Internet Protocol, RFC 791, 1981";

/// The paper that the study `scaling` re-tests.
pub const MARKATOS: &str = "Markatos, Speeding up TCP/IP: Faster Processors are not Enough, 2001";

/// The measurements that HTTP/1.1 was justified by.
pub const NIELSEN: &str =
    "Nielsen et al., Network Performance Effects of HTTP/1.1, CSS1, and PNG, SIGCOMM 1997";

/// Why there is an HTTP/3.
pub const HTTP_3: &str = "RFC 9114 §1.1, HTTP/3, 2022";

/// What each version of HTTP waits for.
pub const HTTP: &str = "RFC 9112, 9113 and 9114, over RFC 9293 and RFC 9000";

/// The assignment that Zhao answers, which makes claims of its own.
pub const MILLER: &str = "Miller, Benchmarking Interprocess Communications, CS 736, 2014";

/// The order of the local mechanisms for one response and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// `latency` or `throughput.acked`: the paper acknowledges every message.
    pub response: &'static str,
    /// Message size in bytes.
    pub size: i64,
    /// Best first.
    pub mechanisms: [&'static str; 3],
}

/// Table 1 of Zhao 2014, local rows.
pub const TABLE_1: [Order; 6] = [
    Order { response: "latency", size: 16, mechanisms: ["udp4", "tcp4", "pipe"] },
    Order { response: "latency", size: 1 << 10, mechanisms: ["udp4", "tcp4", "pipe"] },
    Order { response: "latency", size: 64 << 10, mechanisms: ["tcp4", "udp4", "pipe"] },
    Order { response: "throughput.acked", size: 16, mechanisms: ["udp4", "tcp4", "pipe"] },
    Order { response: "throughput.acked", size: 1 << 10, mechanisms: ["udp4", "tcp4", "pipe"] },
    Order { response: "throughput.acked", size: 64 << 10, mechanisms: ["tcp4", "pipe", "udp4"] },
];

/// The published order for a response and size, if there is one.
pub fn order(response: &str, size: i64) -> Option<&'static Order> {
    TABLE_1.iter().find(|order| order.response == response && order.size == size)
}
