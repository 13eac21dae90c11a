//! Where the other side is: how its agent is started, and which address data goes to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::process::{Command, Stdio};

use plumb_remote::address::with_zone;

use super::address::split_port;
use crate::problem::Problem;

/// How an agent is started or reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReachMethod {
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
pub struct HostTarget {
    /// As the user wrote it.
    pub requested: String,
    /// How its agent is reached.
    pub method: ReachMethod,
}

impl HostTarget {
    /// Reads `user@host`, `host`, `[addr]:port`, `addr%zone` or `netns:NAME`; with `via`, what leads there.
    ///
    /// # Errors
    /// Nothing that could be a host.
    pub fn parse(asked: Option<&str>, via: Option<&str>) -> Result<Self, Problem> {
        if let Some(command) = via {
            let way = ReachMethod::Via(command.to_owned());
            return Ok(Self { requested: asked.unwrap_or(command).to_owned(), method: way });
        }
        let asked = asked.ok_or_else(|| {
            Problem::usage("no host was named").fix("name one: plumb net user@host")
        })?;
        let wrong = |why: &str| {
            Problem::usage(format!("'{asked}' is not a host"))
                .because(why)
                .fix("write user@host, host, [address]:port, tls:host or netns:NAME")
        };
        if let Some(host) = asked.strip_prefix("tls:") {
            let way = ReachMethod::Paired(host.to_owned());
            return Ok(Self { requested: asked.to_owned(), method: way });
        }
        if let Some(name) = asked.strip_prefix("netns:") {
            if name.is_empty() {
                return Err(wrong("a network namespace has a name"));
            }
            let way = ReachMethod::Namespace(name.to_owned());
            return Ok(Self { requested: asked.to_owned(), method: way });
        }
        if asked.is_empty() || asked.starts_with('-') || asked.contains(char::is_whitespace) {
            return Err(wrong("it is empty, begins with a dash, or has a space in it"));
        }
        let (user, host) = asked.rsplit_once('@').unwrap_or(("", asked));
        let (host, port) = split_port(host).ok_or_else(|| wrong("its port is not a number"))?;
        let target = if user.is_empty() { host.to_owned() } else { format!("{user}@{host}") };
        Ok(Self { requested: asked.to_owned(), method: ReachMethod::Ssh { target, port } })
    }

    /// Checks that this process may go there.
    ///
    /// # Errors
    /// A namespace by its name, which only root may enter.
    pub fn check_rights(&self) -> Result<(), Problem> {
        if !matches!(self.method, ReachMethod::Namespace(_)) || rustix::process::geteuid().is_root()
        {
            return Ok(());
        }
        Err(Problem::usage(format!("only root may enter '{}'", self.requested))
            .because("setns(2) into a namespace with a name takes CAP_SYS_ADMIN")
            .fix(
                "run it with sudo, or make hosts of your own without root: plumb link up LAB --hosts a,b",
            ))
    }
}

/// Which family of addresses is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// The first address that the name resolves to.
    #[default]
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl AddressFamily {
    /// Of the addresses of a name those of the family that is wanted.
    ///
    /// # Errors
    /// It has none of it.
    pub fn filter_addresses(
        self,
        name: &str,
        found: &[SocketAddr],
    ) -> Result<Vec<SocketAddr>, Problem> {
        let wanted: Vec<SocketAddr> =
            found.iter().copied().filter(|address| self.accepts(address.ip())).collect();
        if wanted.is_empty() && !found.is_empty() {
            let others: Vec<String> = found.iter().map(|&address| with_zone(address)).collect();
            return Err(Problem::usage(format!("'{name}' has no address of that family"))
                .because(format!("its addresses are {}", others.join(", ")))
                .fix("leave -4 or -6 out"));
        }
        Ok(wanted)
    }

    const fn accepts(self, ip: IpAddr) -> bool {
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
pub fn resolve(name: &str, family: AddressFamily) -> Result<SocketAddr, Problem> {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    let found = (bare, 0).to_socket_addrs().map_err(|error| unknown_host(bare, error))?;
    let found: Vec<SocketAddr> = found.collect();
    if let Some(SocketAddr::V6(address)) = found.first()
        && address.ip().is_unicast_link_local()
        && address.scope_id() == 0
    {
        return Err(Problem::usage(format!("'{bare}' is link-local and has no zone"))
            .because("every link may have a host of that address")
            .fix(format!(
                "add the interface that leads there: '{bare}%eth0'; 'ip link' shows them"
            )));
    }
    let wanted = family.filter_addresses(bare, &found)?;
    wanted.first().copied().ok_or_else(|| {
        Problem::usage(format!("'{bare}' has no address")).fix("check the name, or give an address")
    })
}

/// A name without an address.
fn unknown_host(name: &str, error: std::io::Error) -> Problem {
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
pub fn choose_address(addresses: &[String], family: AddressFamily) -> Option<SocketAddr> {
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
        .filter(|ip| family.accepts(*ip))
        .map(|ip| SocketAddr::new(ip, 0))
        .find(|address| leads(address).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(target: &str, port: Option<u16>) -> ReachMethod {
        ReachMethod::Ssh { target: target.to_owned(), port }
    }

    #[test]
    fn every_form_of_a_host_is_understood() {
        let way = |asked: &str| HostTarget::parse(Some(asked), None).unwrap().method;
        assert_eq!(way("host"), ssh("host", None));
        assert_eq!(way("me@host:2222"), ssh("me@host", Some(2222)));
        assert_eq!(way("fd77::1"), ssh("fd77::1", None));
        assert_eq!(way("[fd77::1]:22"), ssh("fd77::1", Some(22)));
        assert_eq!(way("me@[fe80::1%eth0]"), ssh("me@fe80::1%eth0", None));
        assert_eq!(way("netns:blue"), ReachMethod::Namespace("blue".to_owned()));
        let via =
            HostTarget::parse(Some("10.0.0.2"), Some("docker exec -i box plumb agent --stdio"));
        assert!(matches!(via.unwrap().method, ReachMethod::Via(_)));
    }

    #[test]
    fn what_is_no_host_is_said_so() {
        for asked in ["", "-oProxyCommand=id", "a b", "netns:", "host:port", "[]:22"] {
            assert!(HostTarget::parse(Some(asked), None).is_err(), "{asked}");
        }
        assert!(HostTarget::parse(None, None).is_err());
    }

    #[test]
    fn an_address_needs_no_name_service_and_a_family_is_kept() {
        assert_eq!(resolve("127.0.0.1", AddressFamily::Any).unwrap().ip().to_string(), "127.0.0.1");
        assert!(resolve("127.0.0.1", AddressFamily::V6).is_err());
        assert!(resolve("[::1]", AddressFamily::V6).unwrap().is_ipv6());
    }
}
