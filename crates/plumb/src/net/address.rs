//! Where something listens: an address, a port, or both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};

use crate::problem::Problem;

/// Reads `ADDR`, `ADDR:PORT`, `[ADDR]:PORT`, `:PORT` or `PORT`; what is missing is taken from `default`.
///
/// # Errors
/// It is none of them, or a name without an address.
pub fn parse(text: &str, default: SocketAddr) -> Result<SocketAddr, Problem> {
    let fault = || {
        Problem::usage(format!("'{text}' is not an address to listen on"))
            .fix("write ADDRESS, ADDRESS:PORT, [ADDRESS]:PORT or :PORT")
    };
    if text.is_empty() {
        return Ok(default);
    }
    if let Some(port) = text.strip_prefix(':').or(Some(text)).and_then(|t| t.parse::<u16>().ok()) {
        return Ok(SocketAddr::new(default.ip(), port));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, default.port()));
    }
    // A name, or an address with a zone, with or without a port.
    let (host, port) = host_and_port(text, default.port()).map_err(|_| fault())?;
    let mut found =
        (host.as_str(), port).to_socket_addrs().map_err(|error| fault().because(error))?;
    found.next().ok_or_else(fault)
}

/// Reads `HOST`, `HOST:PORT`, `[ADDRESS]:PORT` or a bare address of IPv6.
///
/// # Errors
/// A port that is none, and brackets that do not match.
pub fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), Problem> {
    let fault = || {
        Problem::usage(format!("'{text}' names no host"))
            .fix("write HOST, HOST:PORT or [ADDRESS]:PORT")
    };
    let (host, port) = split_port(text).ok_or_else(fault)?;
    Ok((host.to_owned(), port.unwrap_or(default_port)))
}

/// `[ADDRESS]:PORT` and `HOST:PORT` in two; an IPv6 address without brackets has no port.
pub fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']')? {
            (host, "") => (host, None),
            (host, port) => (host, Some(port.strip_prefix(':')?)),
        },
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = port.map(str::parse).transpose().ok()?;
    (!host.is_empty()).then_some((host, port))
}

/// The unspecified address of the same family.
pub fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Every address of this host, IPv6 where there is any.
pub fn any(port: u16) -> SocketAddr {
    let v6 = SocketAddr::from(([0_u16; 8], port));
    let works = TcpListener::bind(SocketAddr::from(([0_u16; 8], 0))).is_ok();
    if works { v6 } else { SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_from_the_default() {
        let default = SocketAddr::from(([127, 0, 0, 1], 8480));
        let read = |text: &str| parse(text, default).unwrap().to_string();
        assert_eq!(read(""), "127.0.0.1:8480");
        assert_eq!(read(":99"), "127.0.0.1:99");
        assert_eq!(read("99"), "127.0.0.1:99");
        assert_eq!(read("0.0.0.0"), "0.0.0.0:8480");
        assert_eq!(read("0.0.0.0:7"), "0.0.0.0:7");
        assert_eq!(read("::1"), "[::1]:8480");
        assert_eq!(read("[::]:7"), "[::]:7");
        assert_eq!(read("[::1]"), "[::1]:8480");
        for text in ["1.2.3.4:x", "1.2.3.4:99999", "[::1", "[::1]x", "no such host.example"] {
            assert!(parse(text, default).is_err(), "{text}");
        }
    }
}
