//! Where the other side is: how its agent is started, and which address data goes to.
//!
//! Left out: starting it (`super::reach`).

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::process::{Command, Stdio};

use plumb_net::zone::zoned;

use crate::problem::Problem;

/// How an agent is started or reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// By ssh, as rsync does.
    Ssh {
        /// `user@host` or `host`, as ssh takes it.
        target: String,
        /// The port of ssh, where one was named.
        port: Option<u16>,
    },
    /// Over TLS, to an agent that listens and has been paired with: `host` or `host:port`.
    Paired(String),
    /// In a network namespace of this host.
    Namespace(String),
    /// By whatever command gives its standard streams.
    Via(String),
}

/// The other side, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As the user wrote it.
    pub asked: String,
    /// How its agent is reached.
    pub way: Way,
}

impl Place {
    /// Reads `user@host`, `host`, `[addr]:port`, `addr%zone` or `netns:NAME`; with `via`, what leads there.
    ///
    /// # Errors
    /// Nothing that could be a host.
    pub fn parse(asked: Option<&str>, via: Option<&str>) -> Result<Self, Problem> {
        if let Some(command) = via {
            let way = Way::Via(command.to_owned());
            return Ok(Self { asked: asked.unwrap_or(command).to_owned(), way });
        }
        let asked = asked.ok_or_else(|| {
            Problem::usage("no host was named").fix("name one: plumb net user@host")
        })?;
        let wrong = |why: &str| {
            Problem::usage(format!("'{asked}' is no host"))
                .because(why)
                .fix("write user@host, host, [address]:port, tls:host or netns:NAME")
        };
        if let Some(host) = asked.strip_prefix("tls:") {
            let way = Way::Paired(host.to_owned());
            return Ok(Self { asked: asked.to_owned(), way });
        }
        if let Some(name) = asked.strip_prefix("netns:") {
            if name.is_empty() {
                return Err(wrong("a network namespace has a name"));
            }
            let way = Way::Namespace(name.to_owned());
            return Ok(Self { asked: asked.to_owned(), way });
        }
        if asked.is_empty() || asked.starts_with('-') || asked.contains(char::is_whitespace) {
            return Err(wrong("it is empty, begins with a dash, or has a space in it"));
        }
        let (target, port) = split_port(asked).ok_or_else(|| wrong("its port is no number"))?;
        Ok(Self { asked: asked.to_owned(), way: Way::Ssh { target, port } })
    }
}

/// `[addr]:port` and `host:port` in two; an IPv6 address without brackets has no port.
fn split_port(asked: &str) -> Option<(String, Option<u16>)> {
    let (user, host) = asked.rsplit_once('@').unwrap_or(("", asked));
    let (host, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':')?)),
        None => match host.split_once(':') {
            Some((name, port)) if !port.contains(':') => (name, Some(port)),
            _ => (host, None),
        },
    };
    let port = port.map(str::parse).transpose().ok()?;
    let gap = if user.is_empty() { "" } else { "@" };
    (!host.is_empty()).then(|| (format!("{user}{gap}{host}"), port))
}

/// Which family of addresses is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Whatever the name gives first.
    #[default]
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Of the addresses of a name those of the family that is wanted.
    ///
    /// # Errors
    /// It has none of it.
    pub fn of(self, name: &str, found: &[SocketAddr]) -> Result<Vec<SocketAddr>, Problem> {
        let wanted: Vec<SocketAddr> =
            found.iter().copied().filter(|address| self.takes(address.ip())).collect();
        if wanted.is_empty() && !found.is_empty() {
            let others: Vec<String> = found.iter().map(|&address| zoned(address)).collect();
            return Err(Problem::usage(format!("'{name}' has no address of that family"))
                .because(format!("its addresses are {}", others.join(", ")))
                .fix("leave -4 or -6 away"));
        }
        Ok(wanted)
    }

    const fn takes(self, ip: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => ip.is_ipv4(),
            Self::V6 => ip.is_ipv6(),
        }
    }
}

/// The first address of a name; zones are kept.
///
/// # Errors
/// No such name, or no address of the family.
pub fn resolve(name: &str, family: Family) -> Result<SocketAddr, Problem> {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    let found = (bare, 0).to_socket_addrs().map_err(|error| unknown(bare, error))?;
    let found: Vec<SocketAddr> = found.collect();
    if let Some(SocketAddr::V6(address)) = found.first()
        && address.ip().is_unicast_link_local()
        && address.scope_id() == 0
    {
        return Err(Problem::usage(format!("on which link '{bare}' is is not said"))
            .because("every link may have a host of that address")
            .fix(format!(
                "add the interface that leads there: '{bare}%eth0'; 'ip link' shows them"
            )));
    }
    let wanted = family.of(bare, &found)?;
    wanted.first().copied().ok_or_else(|| {
        Problem::usage(format!("'{bare}' has no address")).fix("check the name, or give an address")
    })
}

/// A name without an address.
fn unknown(name: &str, error: std::io::Error) -> Problem {
    match name.split_once('%') {
        Some((address, zone)) if address.parse::<Ipv6Addr>().is_ok() => {
            Problem::usage(format!("there is no interface '{zone}' that leads to '{name}'"))
                .fix("'ip link' shows the interfaces of this host")
        }
        _ => Problem::usage(format!("the host '{name}' is not known"))
            .because(error)
            .fix("check the name, or give an address"),
    }
}

/// The host that ssh would go to, by its own configuration.
pub fn ssh_host(ssh: &[String], target: &str) -> String {
    let plain = target.rsplit_once('@').map_or(target, |(_, host)| host).to_owned();
    let Some((program, options)) = ssh.split_first() else { return plain };
    let output = Command::new(program)
        .args(options)
        .args(["-G", "--", target])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines()
        .find_map(|line| line.strip_prefix("hostname "))
        .map_or(plain, |host| host.trim().to_owned())
}

/// The first of an agent's own addresses that this host has a way to, and that is not its own.
pub fn choose(addresses: &[String], family: Family) -> Option<SocketAddr> {
    let leads = |address: &SocketAddr| {
        let from = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let port = 9;
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect((address.ip(), port)).ok()?;
        let own = socket.local_addr().ok()?.ip();
        (own != address.ip()).then_some(())
    };
    addresses
        .iter()
        .filter_map(|text| text.parse::<IpAddr>().ok())
        .filter(|ip| family.takes(*ip))
        .map(|ip| SocketAddr::new(ip, 0))
        .find(|address| leads(address).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(target: &str, port: Option<u16>) -> Way {
        Way::Ssh { target: target.to_owned(), port }
    }

    #[test]
    fn every_form_of_a_host_is_understood() {
        let way = |asked: &str| Place::parse(Some(asked), None).unwrap().way;
        assert_eq!(way("host"), ssh("host", None));
        assert_eq!(way("me@host:2222"), ssh("me@host", Some(2222)));
        assert_eq!(way("fd77::1"), ssh("fd77::1", None));
        assert_eq!(way("[fd77::1]:22"), ssh("fd77::1", Some(22)));
        assert_eq!(way("me@[fe80::1%eth0]"), ssh("me@fe80::1%eth0", None));
        assert_eq!(way("netns:blue"), Way::Namespace("blue".to_owned()));
        let via = Place::parse(Some("10.0.0.2"), Some("docker exec -i box plumb agent --stdio"));
        assert!(matches!(via.unwrap().way, Way::Via(_)));
    }

    #[test]
    fn what_is_no_host_is_said_so() {
        for asked in ["", "-oProxyCommand=id", "a b", "netns:", "host:port", "[]:22"] {
            assert!(Place::parse(Some(asked), None).is_err(), "{asked}");
        }
        assert!(Place::parse(None, None).is_err());
    }

    #[test]
    fn an_address_needs_no_name_service_and_a_family_is_kept() {
        assert_eq!(resolve("127.0.0.1", Family::Any).unwrap().ip().to_string(), "127.0.0.1");
        assert!(resolve("127.0.0.1", Family::V6).is_err());
        assert!(resolve("[::1]", Family::V6).unwrap().is_ipv6());
    }
}
