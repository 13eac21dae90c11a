//! Names of Linux's constants, as scripts have them, and numbers of errors.

use libc::c_int;

const TCP_INQ: c_int = 36;

/// The name of a socket option; `None`: the interpreter knows none.
pub fn option_name(level: c_int, option: c_int) -> Option<&'static str> {
    Some(match (level, option) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => "SO_REUSEADDR",
        (libc::SOL_SOCKET, libc::SO_LINGER) => "SO_LINGER",
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => "SO_SNDBUF",
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => "SO_RCVBUF",
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => "SO_KEEPALIVE",
        (libc::SOL_SOCKET, libc::SO_ERROR) => "SO_ERROR",
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => "TCP_NODELAY",
        (libc::IPPROTO_TCP, libc::TCP_CORK) => "TCP_CORK",
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => "TCP_MAXSEG",
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => "TCP_KEEPIDLE",
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => "TCP_KEEPINTVL",
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => "TCP_KEEPCNT",
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => "TCP_SYNCNT",
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => "TCP_QUICKACK",
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => "TCP_CONGESTION",
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => "TCP_USER_TIMEOUT",
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => "TCP_NOTSENT_LOWAT",
        (libc::IPPROTO_TCP, TCP_INQ) => "TCP_INQ",
        (libc::IPPROTO_IP, libc::IP_TOS) => "IP_TOS",
        (libc::IPPROTO_IP, libc::IP_TTL) => "IP_TTL",
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => "IPV6_TCLASS",
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => "IPV6_UNICAST_HOPS",
        _ => return None,
    })
}

/// The names of flags of `send` and `recv`; a number stands for those without.
pub fn message_flags(flags: c_int) -> Vec<String> {
    const KNOWN: [(c_int, &str); 5] = [
        (libc::MSG_DONTWAIT, "MSG_DONTWAIT"),
        (libc::MSG_NOSIGNAL, "MSG_NOSIGNAL"),
        (libc::MSG_PEEK, "MSG_PEEK"),
        (libc::MSG_MORE, "MSG_MORE"),
        (libc::MSG_EOR, "MSG_EOR"),
    ];
    let mut names: Vec<String> = KNOWN
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let rest = KNOWN.iter().fold(flags, |rest, (bit, _)| rest & !bit);
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    names
}

/// Events of `poll`, with their names.
pub const POLL_EVENTS: [(i16, &str); 5] = [
    (libc::POLLIN, "IN"),
    (libc::POLLOUT, "OUT"),
    (libc::POLLERR, "ERR"),
    (libc::POLLHUP, "HUP"),
    (libc::POLLRDHUP, "RDHUP"),
];

/// The number of an error.
pub fn errno(name: &str) -> c_int {
    match name {
        "EADDRINUSE" => libc::EADDRINUSE,
        "EADDRNOTAVAIL" => libc::EADDRNOTAVAIL,
        "EAGAIN" => libc::EAGAIN,
        "EALREADY" => libc::EALREADY,
        "EBADF" => libc::EBADF,
        "ECONNABORTED" => libc::ECONNABORTED,
        "ECONNREFUSED" => libc::ECONNREFUSED,
        "ECONNRESET" => libc::ECONNRESET,
        "EFAULT" => libc::EFAULT,
        "EHOSTUNREACH" => libc::EHOSTUNREACH,
        "EINPROGRESS" => libc::EINPROGRESS,
        "EISCONN" => libc::EISCONN,
        "ENOENT" => libc::ENOENT,
        "ENOTCONN" => libc::ENOTCONN,
        "EOPNOTSUPP" => libc::EOPNOTSUPP,
        "EPIPE" => libc::EPIPE,
        "ETIMEDOUT" => libc::ETIMEDOUT,
        _ => libc::EINVAL,
    }
}
