//! Sockets of a test: made, set as its parameters say, and connected within a deadline.
//!
//! Left out: the server's listeners ([`super::server`]).

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use plumb_base::time::Span;
use plumb_net::measure::connect::connect_tcp;
use plumb_sys::fd;
use plumb_sys::socket;
use plumb_sys::socket::InetSocketKind;
use plumb_sys::socket::IntOption;

use super::control::StopCheck;
use super::parameters::{Iperf3Parameters, Iperf3Transport};

/// Room for datagrams where nobody asked for any: a receiver that is held up for a few milliseconds
/// loses nothing.
const UDP_RECEIVE_BUFFER_BYTES: i32 = 8 << 20;

/// Which addresses are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Iperf3AddressFamily {
    /// Whichever the name has.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// Why a socket of a test could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Iperf3SocketError {
    /// The name means nothing.
    #[error("the host '{host}' is unknown: {why}")]
    UnknownHost {
        /// What was looked for.
        host: String,
        /// What the resolver says.
        why: String,
    },
    /// Nobody there took the connection.
    #[error("cannot connect to {address}: {why}")]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// The kernel's word.
        why: io::Error,
    },
    /// This side's own address is refused.
    #[error("cannot send from {address}: {why}")]
    Source {
        /// Which.
        address: IpAddr,
        /// The kernel's word.
        why: io::Error,
    },
    /// The user does not want to wait for it any more.
    #[error("stopped by its user")]
    Stopped,
    /// An option that the kernel refuses.
    #[error("cannot set {what} of a stream to {value}: {why}")]
    Option {
        /// Which.
        what: &'static str,
        /// To what.
        value: String,
        /// The kernel's word.
        why: io::Error,
    },
}

/// The addresses of a host: a name, an address, or one with a zone as `fe80::1%eth0`.
///
/// # Errors
/// It has none of that family.
pub fn resolve(
    host: &str,
    port: u16,
    family: Iperf3AddressFamily,
) -> Result<Vec<SocketAddr>, Iperf3SocketError> {
    let unknown = |why: String| Iperf3SocketError::UnknownHost { host: host.to_owned(), why };
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found = (plain, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    let wanted = |address: &SocketAddr| match family {
        Iperf3AddressFamily::Any => true,
        Iperf3AddressFamily::V4 => address.is_ipv4(),
        Iperf3AddressFamily::V6 => address.is_ipv6(),
    };
    let found: Vec<SocketAddr> = found.filter(wanted).collect();
    if found.is_empty() {
        return Err(unknown("it has no address of the family that was asked for".to_owned()));
    }
    Ok(found)
}

/// Connects by TCP. Where there are parameters the connection is a stream of theirs.
///
/// # Errors
/// Nobody answers in time, or an option is refused.
pub fn tcp(
    to: SocketAddr,
    from: Option<IpAddr>,
    parameters: Option<&Iperf3Parameters>,
    wait: Span,
    stop: StopCheck<'_>,
) -> Result<TcpStream, Iperf3SocketError> {
    let fail = |why| Iperf3SocketError::Connect { address: to, why };
    let socket = socket::open(to.is_ipv6(), InetSocketKind::Stream).map_err(fail)?;
    if let Some(parameters) = parameters {
        set_stream_options(socket.as_fd(), to.is_ipv6(), parameters)?;
    }
    if let Some(from) = from {
        socket::bind(&socket, source(from, to))
            .map_err(|why| Iperf3SocketError::Source { address: from, why })?;
    }
    connect_tcp(socket, to, wait, stop).map_err(|why| match why.kind() {
        io::ErrorKind::Interrupted => Iperf3SocketError::Stopped,
        io::ErrorKind::TimedOut => {
            let silent = format!("no answer within {wait}; a firewall may be dropping it");
            fail(io::Error::new(io::ErrorKind::TimedOut, silent))
        }
        _ => fail(why),
    })
}

/// A UDP socket that is connected.
///
/// # Errors
/// There is no way there, or an option is refused.
pub fn udp(
    to: SocketAddr,
    from: Option<IpAddr>,
    parameters: &Iperf3Parameters,
) -> Result<UdpSocket, Iperf3SocketError> {
    let fail = |why| Iperf3SocketError::Connect { address: to, why };
    let socket = socket::open(to.is_ipv6(), InetSocketKind::Datagram).map_err(fail)?;
    set_stream_options(socket.as_fd(), to.is_ipv6(), parameters)?;
    if let Some(from) = from {
        socket::bind(&socket, source(from, to))
            .map_err(|why| Iperf3SocketError::Source { address: from, why })?;
    }
    socket::connect(socket.as_fd(), to).map_err(fail)?;
    fd::set_nonblocking(socket.as_fd(), false).map_err(fail)?;
    Ok(UdpSocket::from(socket))
}

/// Any port of this address; in the zone of the other side's where it has one.
fn source(from: IpAddr, to: SocketAddr) -> SocketAddr {
    match (from, to) {
        (IpAddr::V6(from), SocketAddr::V6(to)) => {
            std::net::SocketAddrV6::new(from, 0, 0, to.scope_id()).into()
        }
        (from, _) => SocketAddr::new(from, 0),
    }
}

/// Sets what a test's parameters say about a stream's socket.
///
/// # Errors
/// The kernel refuses one, and which.
pub fn set_stream_options(
    socket: BorrowedFd<'_>,
    v6: bool,
    parameters: &Iperf3Parameters,
) -> Result<(), Iperf3SocketError> {
    fn refused(
        what: &'static str,
        value: &impl ToString,
    ) -> impl FnOnce(io::Error) -> Iperf3SocketError {
        let value = value.to_string();
        move |why| Iperf3SocketError::Option { what, value, why }
    }
    if let Some(window) = parameters.window {
        let bytes = i32::try_from(window).unwrap_or(i32::MAX);
        let why = "the socket buffers (--window)";
        socket::set_option(socket, IntOption::SendBuffer, bytes).map_err(refused(why, &bytes))?;
        socket::set_option(socket, IntOption::ReceiveBuffer, bytes)
            .map_err(refused(why, &bytes))?;
    }
    if parameters.type_of_service != 0 {
        let octet = parameters.type_of_service;
        socket::set_traffic_class(socket, v6, octet)
            .map_err(refused("the type of service", &octet))?;
    }
    if let Some(rate) = parameters.pacing {
        let bytes = rate.bits_per_second() / 8;
        socket::set_pacing_rate(socket, bytes).map_err(refused("the pacing rate", &rate))?;
    }
    match parameters.protocol {
        Iperf3Transport::Udp => {
            if parameters.window.is_none() {
                // A larger buffer is better, but the default is enough to measure with.
                let forced = IntOption::ReceiveBufferForce;
                if socket::set_option(socket, forced, UDP_RECEIVE_BUFFER_BYTES).is_err() {
                    socket::set_option(socket, IntOption::ReceiveBuffer, UDP_RECEIVE_BUFFER_BYTES)
                        .ok();
                }
            }
            if parameters.no_fragments {
                let what = "not to fragment";
                socket::forbid_fragmentation(socket, v6).map_err(refused(what, &true))?;
            }
        }
        Iperf3Transport::Tcp => {
            if parameters.no_delay {
                let what = "no delay (--no-delay)";
                let option = IntOption::NoDelay;
                socket::set_option(socket, option, 1).map_err(refused(what, &true))?;
            }
            if let Some(segment) = parameters.mss {
                let bytes = i32::try_from(segment).unwrap_or(i32::MAX);
                let what = "the largest segment (--set-mss)";
                socket::set_max_segment(socket, bytes).map_err(refused(what, &bytes))?;
            }
            if let Some(name) = &parameters.congestion {
                let what = "the congestion control (--congestion)";
                socket::set_congestion(socket, name).map_err(refused(what, &name))?;
            }
        }
    }
    Ok(())
}

/// Bytes of a socket's buffers as the kernel has them: to send, and to receive.
pub fn buffers(socket: BorrowedFd<'_>) -> [u32; 2] {
    let of = |option| socket::option(socket, option).map_or(0, i32::unsigned_abs);
    [of(IntOption::SendBuffer), of(IntOption::ReceiveBuffer)]
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const WAIT: Span = Span::from_secs(5);

    #[test]
    fn a_zone_is_a_part_of_an_address() {
        let found = resolve("fe80::1%lo", 5201, Iperf3AddressFamily::Any).unwrap();
        let SocketAddr::V6(address) = found[0] else { panic!("{found:?}") };
        assert_ne!(address.scope_id(), 0);
        assert!(resolve("[::1]", 1, Iperf3AddressFamily::V6).is_ok());
        assert!(resolve("127.0.0.1", 1, Iperf3AddressFamily::V6).is_err());
        let error = resolve("no such host", 1, Iperf3AddressFamily::Any).unwrap_err().to_string();
        assert!(error.contains("'no such host'"), "{error}");
    }

    #[test]
    fn a_refused_port_is_told_with_its_address() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let error = tcp(to, None, None, WAIT, &|| false).unwrap_err().to_string();
        assert!(error.contains(&to.to_string()) && error.contains("refused"), "{error}");
    }

    #[test]
    fn options_are_set_before_the_connection_is_made_and_a_bad_one_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let parameters = Iperf3Parameters {
            mss: Some(1_000),
            no_delay: true,
            type_of_service: 16,
            ..Iperf3Parameters::default()
        };
        let from = Some(IpAddr::from([127, 0, 0, 1]));
        let stream = tcp(to, from, Some(&parameters), WAIT, &|| false).unwrap();
        assert!(socket::max_segment(stream.as_fd()).unwrap() <= 1_000);
        assert!(stream.nodelay().unwrap());
        let parameters = Iperf3Parameters {
            congestion: Some("nonsense".to_owned()),
            ..Iperf3Parameters::default()
        };
        let error = tcp(to, None, Some(&parameters), WAIT, &|| false).unwrap_err().to_string();
        assert!(error.contains("'nonsense'") || error.contains("nonsense"), "{error}");
    }

    #[test]
    fn an_address_of_another_host_to_send_from_is_told_as_this_sides_fault() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let foreign = Some(IpAddr::from([192, 0, 2, 77]));
        let error =
            tcp(listener.local_addr().unwrap(), foreign, None, WAIT, &|| false).unwrap_err();
        assert!(matches!(error, Iperf3SocketError::Source { .. }), "{error}");
        assert!(error.to_string().contains("192.0.2.77"), "{error}");
    }
}
