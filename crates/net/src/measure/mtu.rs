//! The path's MTU, found out by datagrams that are not fragmented and that the far side confirms.
//!
//! What is not confirmed after several tries, while a shorter one still is, is too long: so neither a router that
//! keeps silent (a black hole) nor a lost datagram deceives. Lengths are of whole IP packets. Sizes that
//! links have are tried first, then halves. As a part of a test the client probes and the agent confirms each probe with
//! forty bytes, never more than came; the client says when it has done, so that the test ends then.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_result::net::MtuResult;
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::datagram::{path_mtu, probe_path_mtu};
use plumb_sys::errno::{is_too_long, is_transient_datagram};
use plumb_sys::timer::sleep_ns;
use serde::{Deserialize, Serialize};

use super::connect::connect_udp;
use super::pacer::Pacer;
use super::test_spec::MtuSearchSpec;
use plumb_clock::monotonic_ns;
use plumb_remote::address::BindAddress;
use plumb_remote::datagram_header::{
    HEADER_BYTES, TestDatagramHeader, TestDatagramKind, TestToken,
};
use plumb_remote::task_control::TestControl;
use plumb_remote::udp_handshake::{self, AddressCookie};

/// How soon it is seen that a search is called off.
const STOP_POLL_NS: u64 = 20_000_000;
/// Tries until silence is believed.
const TRIES: u32 = 4;
/// Tries of a length that should pass. Each waits twice as long as the one before, as the far side may only be waiting
/// for a CPU.
const PATIENT_TRIES: u32 = 6;
/// Bounds of how long one try waits, which is four round trips.
const WAIT_MIN: Span = Span::from_ms(40);
const WAIT_MAX: Span = Span::from_ms(1500);
/// Before a round trip is known.
const WAIT_FIRST: Span = Span::from_ms(400);
/// What links and tunnels are set to: Ethernet with and without jumbo frames, FDDI, PPPoE, GRE, VXLAN, WireGuard,
/// IPv6's least.
const LIKELY: &[usize] = &[
    65_535, 16_384, 9216, 9000, 8192, 4352, 2304, 1500, 1492, 1480, 1476, 1454, 1450, 1440, 1420,
    1400, 1380, 1280,
];

/// The longest datagram of IPv4.
const DATAGRAM_MAX: usize = 65_535;
/// How long the agent or the client waits at once at most, so that a halt is seen.
const STOP_POLL: Duration = Duration::from_millis(20);
/// How long the client shows its token at most.
const ANNOUNCE_TIMEOUT: Span = Span::from_secs(5);
/// How long the client says that it has done, unless that is heard, and how often.
const END_TIMEOUT_NS: u64 = 1_500_000_000;
const END_INTERVAL_NS: u64 = 100_000_000;
/// How long the agent stays after it has heard so, to answer if it is said again.
const LINGER_NS: u64 = 50_000_000;

/// What a search keeps to.
#[derive(Clone, Copy, Debug)]
pub struct MtuSearchLimits<'a> {
    /// How long it may take; the first probe is sent and waited for in any case.
    pub patience: Span,
    /// The most that is sent, in bytes of payload a second; none is no limit.
    pub rate_max: Option<u64>,
    /// Set when it is to end.
    pub stop: &'a AtomicBool,
}

/// Why the longest packet was not found out.
#[derive(Debug, thiserror::Error)]
enum MtuError {
    #[error("probing the path's MTU failed: {0}")]
    Kernel(#[from] io::Error),
    #[error("{0}")]
    Ended(String),
}

/// The longest packet that arrives, as one side saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MtuPartReport {
    /// The result of the search, on the side that probed only.
    pub found: Option<MtuResult>,
    /// Probes and farewells answered, on the other.
    pub confirmed: u64,
    /// Why nothing was found.
    pub error: Option<String>,
}

/// Which length to try next: pure.
#[derive(Clone, Copy, Debug)]
struct MtuSearch {
    /// The longest that arrived.
    good: usize,
    /// The shortest that did not.
    bad: usize,
}

impl MtuSearch {
    fn next(self) -> Option<usize> {
        if self.good + 1 >= self.bad {
            return None;
        }
        let between: Vec<usize> =
            LIKELY.iter().copied().filter(|&size| size > self.good && size < self.bad).collect();
        // One more than a likely size that arrived settles it, when that one does not.
        if LIKELY.contains(&self.good) && self.bad - self.good > 2 && between.is_empty() {
            return Some(self.good + 1);
        }
        let middle = between.get(between.len() / 2).copied();
        Some(middle.unwrap_or(usize::midpoint(self.good, self.bad)))
    }
}

/// Probes towards the connected peer, which answers as an [`MtuEndpoint`] or a receiver does; the socket is left with
/// its don't-fragment setting.
pub fn probe(socket: &UdpSocket, token: &TestToken, within: MtuSearchLimits<'_>) -> MtuResult {
    let mut result = MtuResult::default();
    if let Err(error) = search(socket, token, within, &mut result) {
        result.problem = Some(error.to_string());
    }
    result
}

fn search(
    socket: &UdpSocket,
    token: &TestToken,
    within: MtuSearchLimits<'_>,
    result: &mut MtuResult,
) -> Result<(), MtuError> {
    let peer = socket.peer_addr()?;
    probe_path_mtu(socket.as_fd(), peer.is_ipv6())?;
    // The size that every IPv4 host must accept (RFC 1122 §3.3.2), and every IPv6 link must carry (RFC 8200 §5).
    let (headers, least, most) =
        if peer.is_ipv6() { (48, 1280, 65_575) } else { (28, 576, 65_535) };
    let mut prober = MtuProber {
        socket,
        token,
        within,
        headers,
        wait: WAIT_FIRST,
        sequence: 0,
        buffer: vec![0; most],
        limited_at: usize::MAX,
        in_doubt: None,
        result,
        until_ns: read_ns(ClockId::MonotonicRaw).saturating_add(within.patience.as_ns()),
        next_ns: 0,
    };
    if prober.try_patiently(least)? != MtuProbeOutcome::Confirmed {
        return Err(silence(least));
    }
    let mut search = MtuSearch { good: least, bad: most + 1 };
    while let Some(length) = search.next() {
        match prober.try_length(length)? {
            MtuProbeOutcome::Confirmed => search.good = length,
            MtuProbeOutcome::Refused => search.bad = length,
            MtuProbeOutcome::Silent => {
                prober.in_doubt = Some(length);
                if prober.try_patiently(search.good)? != MtuProbeOutcome::Confirmed {
                    return Err(MtuError::Ended(format!(
                        "probes of {} bytes, confirmed before, were lost {PATIENT_TRIES} times: the path failed; try \
                         again",
                        search.good
                    )));
                }
                if prober.in_doubt.take().is_some() {
                    prober.result.silent += 1;
                    search.bad = length;
                } else {
                    search.good = length;
                }
            }
        }
    }
    prober.result.limited_here = prober.limited_at == search.bad;
    result.path_bytes = Some(as_u64(search.good));
    result.payload_bytes = Some(as_u64(search.good - headers));
    result.kernel_bytes = kernel_mtu(peer).ok().map(u64::from);
    Ok(())
}

/// Not even the shortest was confirmed.
fn silence(bytes: usize) -> MtuError {
    MtuError::Ended(format!(
        "no probe of {bytes} bytes came back: UDP between the hosts is filtered, the path takes longer than --mtu \
         waits, or the far side has ended"
    ))
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

/// What the kernel believes of the path to an address.
fn kernel_mtu(peer: SocketAddr) -> io::Result<u32> {
    // One that has sent nothing yet asks the routing table, which holds what others were told.
    let fresh = connect_udp(peer)?;
    path_mtu(fresh.as_fd(), peer.is_ipv6())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MtuProbeOutcome {
    Confirmed,
    /// By this host's interface or by a router.
    Refused,
    Silent,
}

struct MtuProber<'a> {
    socket: &'a UdpSocket,
    token: &'a TestToken,
    within: MtuSearchLimits<'a>,
    headers: usize,
    wait: Span,
    sequence: u32,
    buffer: Vec<u8>,
    limited_at: usize,
    /// The length that was not confirmed in time, until it is confirmed late.
    in_doubt: Option<usize>,
    result: &'a mut MtuResult,
    until_ns: u64,
    /// When the next probe may be sent.
    next_ns: u64,
}

impl MtuProber<'_> {
    fn try_length(&mut self, length: usize) -> Result<MtuProbeOutcome, MtuError> {
        self.try_each(length, (0..TRIES).map(|_| 1))
    }

    fn try_patiently(&mut self, length: usize) -> Result<MtuProbeOutcome, MtuError> {
        self.try_each(length, (0..PATIENT_TRIES).map(|doublings| 1 << doublings))
    }

    /// Tries a length once for each factor of the wait.
    fn try_each(
        &mut self,
        length: usize,
        factors: impl Iterator<Item = u64>,
    ) -> Result<MtuProbeOutcome, MtuError> {
        for factor in factors {
            self.wait_for_slot(length)?;
            if !self.send(length)? {
                self.limited_at = length;
                return Ok(MtuProbeOutcome::Refused);
            }
            match self.await_answer(length, (self.wait * factor).min(WAIT_MAX))? {
                MtuProbeOutcome::Silent => {}
                outcome => return Ok(outcome),
            }
        }
        // Silence that was not listened to for long enough proves nothing.
        if read_ns(ClockId::MonotonicRaw) >= self.until_ns {
            return Err(self.late(length));
        }
        Ok(MtuProbeOutcome::Silent)
    }

    /// Waits until another probe keeps to the rates.
    fn wait_for_slot(&self, length: usize) -> Result<(), MtuError> {
        loop {
            if self.within.stop.load(Ordering::Relaxed) {
                return Err(MtuError::Ended(match self.result.arrived_bytes {
                    None => "the search was called off before any packet was confirmed".to_owned(),
                    Some(bytes) => format!(
                        "packets of {bytes} bytes arrive; the search was called off before it had found out about \
                         longer ones"
                    ),
                }));
            }
            let now = read_ns(ClockId::MonotonicRaw);
            if self.result.probes > 0 && now.max(self.next_ns) >= self.until_ns {
                return Err(self.late(length));
            }
            let left = self.next_ns.saturating_sub(now);
            if left == 0 {
                return Ok(());
            }
            sleep_ns(left.min(STOP_POLL_NS));
        }
    }

    /// Its time is over while this length is tried.
    fn late(&self, length: usize) -> MtuError {
        let Some(bytes) = self.result.arrived_bytes else { return silence(length) };
        let patience = self.within.patience;
        MtuError::Ended(format!(
            "packets of {bytes} bytes arrive; whether longer ones do was not found out in {patience}"
        ))
    }

    /// Sends one probe; false where this host's interface takes none so long.
    fn send(&mut self, length: usize) -> io::Result<bool> {
        let payload = length - self.headers;
        self.sequence += 1;
        let header = TestDatagramHeader::of(TestDatagramKind::Probe, 0, self.sequence, 0);
        header.write(self.token, &mut self.buffer);
        let mut refused = 0;
        // The first refusal may be about an earlier probe.
        for _ in 0..2 {
            match self.socket.send(&self.buffer[..payload]) {
                Ok(_) => {
                    self.result.probes += 1;
                    let now = read_ns(ClockId::MonotonicRaw);
                    let at_rate = self
                        .within
                        .rate_max
                        .map_or(0, |rate| Pacer::new(now, rate).due_ns(as_u64(payload)));
                    let at_most = Pacer::new(now, MtuSearchSpec::PER_SECOND_MAX.into()).due_ns(1);
                    self.next_ns = at_rate.max(at_most);
                    return Ok(true);
                }
                Err(error) if is_too_long(&error) => refused += 1,
                Err(error) if is_transient_datagram(&error) => {}
                Err(error) => return Err(error),
            }
        }
        // Other refusals are silence: the next try may pass.
        Ok(refused < 2)
    }

    fn await_answer(&mut self, length: usize, wait: Span) -> io::Result<MtuProbeOutcome> {
        let sent_ns = read_ns(ClockId::MonotonicRaw);
        let mut until_ns = sent_ns + wait.as_ns();
        if self.result.probes > 1 {
            until_ns = until_ns.min(self.until_ns);
        }
        let mut answer = [0; HEADER_BYTES];
        loop {
            // What came while this thread was held up is read also after the time.
            let left_ns = until_ns.saturating_sub(read_ns(ClockId::MonotonicRaw)).max(1_000_000);
            self.socket.set_read_timeout(Some(Duration::from_nanos(left_ns)))?;
            match self.socket.recv(&mut answer) {
                Ok(len) => {
                    let confirmed = TestDatagramHeader::read(self.token, &answer[..len])
                        .filter(|header| header.kind == TestDatagramKind::ProbeAck);
                    if let Some(header) = confirmed
                        && self.note_confirmed(&header, length, sent_ns)
                    {
                        return Ok(MtuProbeOutcome::Confirmed);
                    }
                }
                Err(error) if is_too_long(&error) => {
                    self.result.told_by_router = true;
                    return Ok(MtuProbeOutcome::Refused);
                }
                Err(error) if is_transient_datagram(&error) => {}
                Err(error) => return Err(error),
            }
            if read_ns(ClockId::MonotonicRaw) >= until_ns {
                return Ok(MtuProbeOutcome::Silent);
            }
        }
    }

    /// Records a confirmation; returns whether it is of the length being tried.
    fn note_confirmed(&mut self, header: &TestDatagramHeader, length: usize, sent_ns: u64) -> bool {
        let is_of = |length: usize| header.intended_ns == as_u64(length - self.headers);
        let confirmed =
            if is_of(length) { Some(length) } else { self.in_doubt.filter(|&l| is_of(l)) };
        self.result.arrived_bytes = self.result.arrived_bytes.max(confirmed.map(as_u64));
        if confirmed == self.in_doubt {
            self.in_doubt = None;
        }
        if confirmed != Some(length) {
            return false;
        }
        if header.sequence == self.sequence {
            let round_trip = read_ns(ClockId::MonotonicRaw) - sent_ns;
            let four = Span::from_ns(round_trip) * 4;
            // Never shorter than before: one quick answer proves little about the next.
            let floor = if self.wait == WAIT_FIRST { WAIT_MIN } else { self.wait };
            self.wait = four.clamp(floor, WAIT_MAX);
        }
        true
    }
}

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
            // The agent confirms nothing to an address that it was not heard at.
            let patience = self.patience.min(ANNOUNCE_TIMEOUT);
            let met = udp_handshake::connect(&self.socket, &self.token, 0, patience, within.stop);
            if let Err(error) = met {
                account.error = Some(error.to_string());
                return account;
            }
            let found = probe(&self.socket, &self.token, within);
            account.error.clone_from(&found.problem);
            account.found = Some(found);
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
        self.socket.set_read_timeout(Some(STOP_POLL))?;
        let mut buffer = vec![0; DATAGRAM_MAX];
        let (cookie, mut is_admitted) = (AddressCookie::draw()?, false);
        let mut over_ns = u64::MAX;
        while !control.is_halted() && monotonic_ns() < deadline_ns().min(over_ns) {
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok(came) => came,
                Err(error) if is_transient_datagram(&error) => continue,
                Err(error) => return Err(error),
            };
            let bytes = &buffer[..len];
            if !is_admitted {
                is_admitted = cookie.admits(&self.socket, &self.token, bytes, from)
                    && self.socket.connect(from).is_ok();
                continue;
            }
            let Some(reply) = udp_handshake::reply_to(&self.token, bytes) else { continue };
            account.confirmed += u64::from(self.socket.send(&reply).is_ok());
            let kind = TestDatagramHeader::read(&self.token, bytes).map(|header| header.kind);
            if kind == Some(TestDatagramKind::End) && over_ns == u64::MAX {
                over_ns = monotonic_ns().saturating_add(LINGER_NS);
            }
        }
        Ok(())
    }

    fn send_end(&self, control: &TestControl) -> io::Result<()> {
        self.socket.set_read_timeout(Some(STOP_POLL))?;
        let end = TestDatagramHeader::of(TestDatagramKind::End, 0, 0, 0).to_bytes(&self.token);
        let until_ns = monotonic_ns().saturating_add(END_TIMEOUT_NS);
        let (mut next_ns, mut buffer) = (0, [0; HEADER_BYTES]);
        while !control.is_halted() && monotonic_ns() < until_ns {
            if monotonic_ns() >= next_ns {
                // A send that fails is repeated.
                let _ = self.socket.send(&end);
                next_ns = monotonic_ns().saturating_add(END_INTERVAL_NS);
            }
            match self.socket.recv(&mut buffer) {
                Ok(len) => {
                    let heard = TestDatagramHeader::read(&self.token, &buffer[..len]);
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    const TOKEN: TestToken = TestToken([4; 16]);
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    proptest! {
        #[test]
        fn every_mtu_is_found_in_few_steps(mtu in 576..65_535_usize) {
            let (mut search, mut steps) = (MtuSearch { good: 576, bad: 65_536 }, 0);
            while let Some(length) = search.next() {
                prop_assert!(search.good < length && length < search.bad);
                if length <= mtu { search.good = length } else { search.bad = length }
                steps += 1;
            }
            prop_assert_eq!(search.good, mtu);
            prop_assert!(steps <= 25, "{steps}");
        }
    }

    #[test]
    fn what_links_have_is_found_at_once() {
        for &mtu in LIKELY {
            let (mut search, mut failures) = (MtuSearch { good: 576, bad: 65_536 }, 0);
            while let Some(length) = search.next() {
                if length <= mtu {
                    search.good = length;
                } else {
                    search.bad = length;
                    failures += 1;
                }
            }
            assert_eq!(search.good, mtu);
            assert!(failures <= 5, "{mtu} {failures}");
        }
    }

    fn within(seconds: u64, stop: &AtomicBool) -> MtuSearchLimits<'_> {
        MtuSearchLimits { patience: Span::from_secs(seconds), rate_max: None, stop }
    }

    /// The prober's socket, and the one that it is connected to.
    fn pair(at: &str) -> (UdpSocket, UdpSocket) {
        let (near, far) = (UdpSocket::bind(at).unwrap(), UdpSocket::bind(at).unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        (near, far)
    }

    /// Answers probes as the agent's side does, until told to stop; the bytes of each.
    fn serve(socket: &UdpSocket, token: &TestToken, stop: &AtomicBool) -> Vec<usize> {
        serve_held_up(socket, token, stop, Span::ZERO)
    }

    /// The same, held up for so long before its third answer.
    fn serve_held_up(
        socket: &UdpSocket,
        token: &TestToken,
        stop: &AtomicBool,
        pause: Span,
    ) -> Vec<usize> {
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (mut buffer, mut bytes) = (vec![0; 65_536], Vec::new());
        while !stop.load(Ordering::Relaxed) {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            bytes.push(len);
            if bytes.len() == 3 {
                sleep_ns(pause.as_ns());
            }
            if let Some(reply) = udp_handshake::reply_to(token, &buffer[..len]) {
                socket.send_to(&reply, from).ok();
            }
        }
        bytes
    }

    #[test]
    fn loopback_is_as_wide_as_a_packet_may_be_in_both_families() {
        for (at, expected) in [("127.0.0.1:0", 65_535), ("[::1]:0", 65_536)] {
            let (near, far) = pair(at);
            let (token, stop) = (TOKEN, AtomicBool::new(false));
            let report = std::thread::scope(|scope| {
                let serving = scope.spawn(|| serve(&far, &token, &stop));
                let report = probe(&near, &token, within(20, &stop));
                assert_eq!(report.arrived_bytes, report.path_bytes, "{report:?}");
                stop.store(true, Ordering::Relaxed);
                assert!(!serving.join().unwrap().is_empty());
                report
            });
            let loopback = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
            if loopback.trim() == "65536" {
                assert_eq!(report.path_bytes, Some(expected), "{report:?}");
                assert_eq!(report.kernel_bytes, Some(expected));
            }
            assert!(report.silent == 0 && report.probes > 0, "{report:?}");
        }
    }

    #[test]
    fn a_far_side_that_is_held_up_neither_shortens_the_path_nor_ends_the_search() {
        // Longer than the tries of one length take, and than those together with as many of one that had passed.
        for pause in [Span::from_ms(240), Span::from_ms(900)] {
            let (near, far) = pair("127.0.0.1:0");
            let stop = AtomicBool::new(false);
            let report = std::thread::scope(|scope| {
                scope.spawn(|| serve_held_up(&far, &TOKEN, &stop, pause));
                let report = probe(&near, &TOKEN, within(20, &stop));
                stop.store(true, Ordering::Relaxed);
                report
            });
            assert_eq!(report.path_bytes, Some(65_535), "{report:?}");
            assert_eq!((report.arrived_bytes, report.silent), (Some(65_535), 0), "{report:?}");
        }
    }

    #[test]
    fn probes_are_confirmed_only_to_an_address_that_has_shown_that_it_receives() {
        let spec = MtuSearchSpec { patience_ns: 60_000_000_000 };
        let agent = MtuEndpoint::listen(TOKEN, &spec, BindAddress::only(HERE, 0)).unwrap();
        let at = SocketAddr::new(HERE, agent.port().unwrap());
        let (unproven, client) = (connect_udp(at).unwrap(), connect_udp(at).unwrap());
        let probe = TestDatagramHeader::of(TestDatagramKind::Probe, 0, 0, 0).to_bytes(&TOKEN);
        unproven.send(&probe).unwrap();
        let (control, deadline_ns) = (TestControl::default(), monotonic_ns() + spec.patience_ns);
        std::thread::scope(|scope| {
            let confirming = scope.spawn(|| agent.run(|| deadline_ns, &control));
            let (patience, stop) = (Span::from_secs(5), control.stop_flag());
            let met = udp_handshake::connect(&client, &TOKEN, 0, patience, stop);
            client.send(&probe).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let confirmed = client.recv(&mut [0; HEADER_BYTES]);
            control.halt();
            let report = confirming.join().unwrap();
            assert!(met.is_ok() && confirmed.is_ok(), "{met:?} {confirmed:?}");
            assert_eq!(report.confirmed, 1);
        });
        unproven.set_nonblocking(true).unwrap();
        assert!(unproven.recv(&mut [0; HEADER_BYTES]).is_err(), "it was answered");
    }

    #[test]
    fn a_search_that_comes_to_no_end_says_why_and_what_arrives_for_sure() {
        // Whether there is an answer, the patience, whether it is stopped; what is known then.
        for (is_answered, seconds, is_stopped, arrived, expected) in [
            (true, 0, false, Some(576), "packets of 576 bytes arrive; whether longer ones do"),
            (true, 20, true, None, "called off before any packet was confirmed"),
            (false, 20, false, None, "no probe of 576 bytes came back"),
        ] {
            let (near, far) = pair("127.0.0.1:0");
            let (over, stop) = (AtomicBool::new(!is_answered), AtomicBool::new(is_stopped));
            let result = std::thread::scope(|scope| {
                scope.spawn(|| serve(&far, &TOKEN, &over));
                let result = probe(&near, &TOKEN, within(seconds, &stop));
                over.store(true, Ordering::Relaxed);
                result
            });
            assert!(result.problem.as_ref().unwrap().contains(expected), "{result:?}");
            assert_eq!((result.path_bytes, result.arrived_bytes), (None, arrived), "{result:?}");
            let probes = if is_answered { u64::from(!is_stopped) } else { TRIES.into() };
            assert!(result.silent == 0 && result.probes >= probes, "{result:?}");
        }
    }

    #[test]
    fn a_search_sends_no_more_than_its_rate_allows_and_ends_in_its_time() {
        let (near, far) = pair("127.0.0.1:0");
        let (token, stop) = (TOKEN, AtomicBool::new(false));
        // A packet of 16 KiB would take all of it, and shorter ones come before.
        let patience = Span::from_ms(1_500);
        let within = MtuSearchLimits { patience, rate_max: Some(10_000), stop: &stop };
        let began_ns = read_ns(ClockId::MonotonicRaw);
        let (result, bytes) = std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&far, &token, &stop));
            let result = probe(&near, &token, within);
            stop.store(true, Ordering::Relaxed);
            (result, serving.join().unwrap())
        });
        let took = Span::from_ns(read_ns(ClockId::MonotonicRaw) - began_ns);
        assert!(result.problem.as_ref().unwrap().contains("was not found out in"), "{result:?}");
        // All but the last, after which nothing more is sent, had to be paid for with time.
        let paid: usize = bytes[..bytes.len() - 1].iter().sum();
        assert!(paid as f64 <= 10_000.0 * took.as_secs_f64(), "{bytes:?} in {took}");
        assert!(result.arrived_bytes >= Some(576) && bytes.len() > 1, "{result:?}");
    }
}
