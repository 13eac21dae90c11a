//! One side of finding the path's MTU as a part of a test: the client probes, the agent confirms.
//!
//! The client says when it has done, so that the test ends then. The agent confirms each probe with forty bytes,
//! to whoever shows the token, and so never sends more than came. Left out: which lengths are tried
//! ([`super::probe`]).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use plumb_base::time::Span;

use super::{MtuSearchLimits, probe};
use crate::measure::connect::connect_udp;
use crate::measure::report::MtuPartReport;
use crate::measure::test_spec::MtuSearchSpec;
use plumb_clock::monotonic_ns;
use plumb_remote::address::BindAddress;
use plumb_remote::datagram_header::{HEADER_BYTES, TestDatagramHeader, TestDatagramKind};
use plumb_remote::task_control::TestControl;
use plumb_remote::token::TestToken;
use plumb_remote::udp_handshake;

/// The longest datagram of IPv4.
const DATAGRAM_MAX: usize = 65_535;
/// How long one wait lasts at most, so that a halt is seen.
const WAIT: Duration = Duration::from_millis(20);
/// How long the client says that it has done, unless that is heard, and how often.
const END_TIMEOUT_NS: u64 = 1_500_000_000;
const END_INTERVAL_NS: u64 = 100_000_000;
/// How long the agent stays after it has heard so, to answer if it is said again.
const LINGER_NS: u64 = 50_000_000;

/// One side.
#[derive(Debug)]
pub struct MtuEndpoint {
    socket: UdpSocket,
    token: TestToken,
    patience: Span,
    /// The most that is sent, in bytes a second.
    rate_max: Option<u64>,
    is_prober: bool,
}

impl MtuEndpoint {
    /// The agent's side.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listen(token: TestToken, spec: &MtuSearchSpec, at: BindAddress) -> io::Result<Self> {
        let socket = at.open(UdpSocket::bind)?;
        let patience = Span::from_ns(spec.patience_ns);
        Ok(Self { socket, token, patience, rate_max: None, is_prober: false })
    }

    /// The client's side, towards the agent's, which takes so many bytes a second.
    ///
    /// # Errors
    /// The kernel's: no route to the address, for one.
    pub fn connect(
        address: SocketAddr,
        token: TestToken,
        spec: &MtuSearchSpec,
        rate_max: Option<u64>,
    ) -> io::Result<Self> {
        let socket = connect_udp(address)?;
        let patience = Span::from_ns(spec.patience_ns);
        Ok(Self { socket, token, patience, rate_max, is_prober: true })
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
    pub fn run(&self, deadline_ns: impl Fn() -> u64, control: &TestControl) -> MtuPartReport {
        let mut account = MtuPartReport::default();
        if self.is_prober {
            let within = MtuSearchLimits {
                patience: self.patience,
                rate_max: self.rate_max,
                stop: control.stop_flag(),
            };
            match probe(&self.socket, &self.token.0, within, &mut account.searched) {
                Ok(found) => account.found = Some(found),
                Err(error) => account.error = Some(error.to_string()),
            }
            account.error = account.error.or(self.send_end(control).err().map(|e| e.to_string()));
        } else if let Err(error) = self.confirm(deadline_ns, control, &mut account) {
            account.error = Some(error.to_string());
        }
        account
    }

    fn confirm(
        &self,
        deadline_ns: impl Fn() -> u64,
        control: &TestControl,
        account: &mut MtuPartReport,
    ) -> io::Result<()> {
        self.socket.set_read_timeout(Some(WAIT))?;
        let mut buffer = vec![0; DATAGRAM_MAX];
        let mut over_ns = u64::MAX;
        while !control.is_halted() && monotonic_ns() < deadline_ns().min(over_ns) {
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok(came) => came,
                Err(error) if udp_handshake::is_transient(&error) => continue,
                Err(error) => return Err(error),
            };
            let bytes = &buffer[..len];
            let Some(reply) = udp_handshake::reply_to(&self.token.0, bytes) else { continue };
            account.confirmed += u64::from(self.socket.send_to(&reply, from).is_ok());
            let kind = TestDatagramHeader::read(&self.token.0, bytes).map(|header| header.kind);
            if kind == Some(TestDatagramKind::End) && over_ns == u64::MAX {
                over_ns = monotonic_ns().saturating_add(LINGER_NS);
            }
        }
        Ok(())
    }

    fn send_end(&self, control: &TestControl) -> io::Result<()> {
        self.socket.set_read_timeout(Some(WAIT))?;
        let end = TestDatagramHeader::of(TestDatagramKind::End, 0, 0, 0).to_bytes(&self.token.0);
        let until_ns = monotonic_ns().saturating_add(END_TIMEOUT_NS);
        let (mut next_ns, mut buffer) = (0, [0; HEADER_BYTES]);
        while !control.is_halted() && monotonic_ns() < until_ns {
            if monotonic_ns() >= next_ns {
                // What does not leave is said again.
                let _ = self.socket.send(&end);
                next_ns = monotonic_ns().saturating_add(END_INTERVAL_NS);
            }
            match self.socket.recv(&mut buffer) {
                Ok(len) => {
                    let heard = TestDatagramHeader::read(&self.token.0, &buffer[..len]);
                    if heard.is_some_and(|heard| heard.kind == TestDatagramKind::EndAck) {
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
