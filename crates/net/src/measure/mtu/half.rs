//! One side of finding the path's MTU as a part of a test: the client probes, the agent confirms.
//!
//! The client says when it has done, so that the test ends then. The agent confirms each probe with forty bytes,
//! to whoever shows the token, and so never sends more than came. Left out: which lengths are tried
//! ([`super::probe`]).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use plumb_base::time::Span;

use super::{Within, probe};
use crate::clock::steady_ns;
use crate::measure::bind::Bind;
use crate::measure::control::Control;
use crate::measure::datagram::header::{Header, Kind, LEN};
use crate::measure::datagram::meeting;
use crate::measure::report::MtuAccount;
use crate::measure::spec::MtuSpec;
use crate::protocol::token::Token;

/// The longest datagram of IPv4.
const DATAGRAM_MAX: usize = 65_535;
/// How long one wait lasts at most, so that a halt is seen.
const WAIT: Duration = Duration::from_millis(20);
/// How long the client says that it has done, unless that is heard, and how often.
const FAREWELL_NS: u64 = 1_500_000_000;
const FAREWELL_EACH_NS: u64 = 100_000_000;
/// How long the agent stays after it has heard so, to answer if it is said again.
const LINGER_NS: u64 = 50_000_000;

/// One side.
#[derive(Debug)]
pub struct Half {
    socket: UdpSocket,
    token: Token,
    patience: Span,
    /// The most that is sent, in bytes a second.
    rate_max: Option<u64>,
    asks: bool,
}

impl Half {
    /// The agent's side.
    ///
    /// # Errors
    /// The kernel's.
    pub fn offer(token: Token, spec: &MtuSpec, at: Bind) -> io::Result<Self> {
        let socket = at.open(UdpSocket::bind)?;
        let patience = Span::from_ns(spec.patience_ns);
        Ok(Self { socket, token, patience, rate_max: None, asks: false })
    }

    /// The client's side, towards the agent's, which takes so many bytes a second.
    ///
    /// # Errors
    /// The kernel's: no route to the address, for one.
    pub fn connect(
        address: SocketAddr,
        token: Token,
        spec: &MtuSpec,
        rate_max: Option<u64>,
    ) -> io::Result<Self> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        let patience = Span::from_ns(spec.patience_ns);
        Ok(Self { socket, token, patience, rate_max, asks: true })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Probes, or confirms until the client has done, the test is halted, or it is over; `deadline_ns` says when
    /// that is, once it is known.
    pub fn work(&self, deadline_ns: impl Fn() -> u64, control: &Control) -> MtuAccount {
        let mut account = MtuAccount::default();
        if self.asks {
            let within =
                Within { patience: self.patience, rate_max: self.rate_max, stop: control.halted() };
            match probe(&self.socket, &self.token.0, within, &mut account.searched) {
                Ok(found) => account.found = Some(found),
                Err(error) => account.error = Some(error.to_string()),
            }
            account.error = account.error.or(self.say_end(control).err().map(|e| e.to_string()));
        } else if let Err(error) = self.confirm(deadline_ns, control, &mut account) {
            account.error = Some(error.to_string());
        }
        account
    }

    fn confirm(
        &self,
        deadline_ns: impl Fn() -> u64,
        control: &Control,
        account: &mut MtuAccount,
    ) -> io::Result<()> {
        self.socket.set_read_timeout(Some(WAIT))?;
        let mut buffer = vec![0; DATAGRAM_MAX];
        let mut over_ns = u64::MAX;
        while !control.is_halted() && steady_ns() < deadline_ns().min(over_ns) {
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok(came) => came,
                Err(error) if meeting::is_passing(&error) => continue,
                Err(error) => return Err(error),
            };
            let bytes = &buffer[..len];
            let Some(reply) = meeting::answer(&self.token.0, bytes) else { continue };
            account.confirmed += u64::from(self.socket.send_to(&reply, from).is_ok());
            let kind = Header::read(&self.token.0, bytes).map(|header| header.kind);
            if kind == Some(Kind::End) && over_ns == u64::MAX {
                over_ns = steady_ns().saturating_add(LINGER_NS);
            }
        }
        Ok(())
    }

    fn say_end(&self, control: &Control) -> io::Result<()> {
        self.socket.set_read_timeout(Some(WAIT))?;
        let end = Header::of(Kind::End, 0, 0, 0).to_bytes(&self.token.0);
        let until_ns = steady_ns().saturating_add(FAREWELL_NS);
        let (mut next_ns, mut buffer) = (0, [0; LEN]);
        while !control.is_halted() && steady_ns() < until_ns {
            if steady_ns() >= next_ns {
                // What does not leave is said again.
                let _ = self.socket.send(&end);
                next_ns = steady_ns().saturating_add(FAREWELL_EACH_NS);
            }
            match self.socket.recv(&mut buffer) {
                Ok(len) => {
                    let heard = Header::read(&self.token.0, &buffer[..len]);
                    if heard.is_some_and(|heard| heard.kind == Kind::EndHeard) {
                        break;
                    }
                }
                // News of probes that were too long may still come.
                Err(_) if control.is_halted() => break,
                Err(_) => {}
            }
        }
        Ok(())
    }
}
