//! Transfers in virtual time: two hosts that take none, and a link between them. One seed, one result, on any machine.

use std::collections::VecDeque;

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_harness::launch_network::emulator_process::DiskFiles;
use plumb_harness::mirror::mirror_process::NamedSamples;
use plumb_harness::report::LaunchFault;
use plumb_harness::spec::{TransferLoad, TransferSpec};
use plumb_link::spec::LinkSpec;
use plumb_stack::tcp::Received;

use super::packet_buffers::BufferedHost;
use super::virtual_hosts::VirtualHosts;
use super::{add_samples, segment_samples, tcp_config};

/// Transfers of a block.
const TRANSFERS: u64 = 8;
/// Virtual time after which a transfer is given up: what was carried until then counts.
const GIVEN_UP: Span = Span::from_secs(7_200);
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// Carries out the transfers of a block.
pub(super) fn run(
    spec: &TransferSpec,
    link: &str,
    seed: Seed,
) -> Result<NamedSamples, LaunchFault> {
    let link = LinkSpec::parse(link, &DiskFiles)
        .map_err(|error| LaunchFault::Failed(format!("'{link}' is not a link: {error}")))?;
    let mut samples = NamedSamples::new();
    for number in 0..TRANSFERS {
        let seed = seed.derive(&format!("transfer {number}"));
        for (response, values) in VirtualTransfer::new(spec, &link, seed)?.finish()? {
            add_samples(&mut samples, response, values);
        }
    }
    Ok(samples)
}

/// A transfer under way.
struct VirtualTransfer {
    pair: VirtualHosts,
    buffers: BufferedHost,
    load: TransferLoad,
    /// When the connection was open at the sender.
    begun: Option<Instant>,
    sent: u64,
    received: u64,
    /// When the lines that were not read yet were due.
    due: VecDeque<Instant>,
    delays: Vec<f64>,
    next_read: Instant,
}

impl VirtualTransfer {
    fn new(spec: &TransferSpec, link: &LinkSpec, seed: Seed) -> Result<Self, LaunchFault> {
        let pair = VirtualHosts::new(link, &tcp_config(&spec.tcp), seed)?;
        Ok(Self {
            next_read: pair.now,
            pair,
            buffers: BufferedHost::new(spec.tcp.packet_buffers),
            load: spec.load,
            begun: None,
            sent: 0,
            received: 0,
            due: VecDeque::new(),
            delays: Vec::new(),
        })
    }

    /// Carries it out; the samples of each response.
    fn finish(mut self) -> Result<Vec<(&'static str, Vec<f64>)>, LaunchFault> {
        let total = self.total();
        let give_up = self.pair.now + GIVEN_UP;
        while self.received < total && self.pair.now < give_up {
            self.send();
            self.read();
            if !self.step(give_up) {
                break;
            }
        }
        let is_lines = matches!(self.load, TransferLoad::Lines { .. });
        if self.received == 0 || (is_lines && self.received < total) {
            let text = "the connection was given up: it never had an answer in time".to_owned();
            return Err(LaunchFault::Unavailable(text));
        }
        let took =
            self.pair.now.saturating_since(self.begun.unwrap_or(self.pair.now)).as_secs_f64();
        let info =
            self.pair.connections[SENDER].and_then(|id| self.pair.hosts[SENDER].tcp_info(id));
        let mut samples = vec![if is_lines {
            ("delay", vec![mean(&self.delays)])
        } else {
            ("throughput", vec![self.received as f64 / took.max(1e-9)])
        }];
        let segments = info.map(|info| segment_samples(&info, self.received));
        samples.extend(segments.into_iter().flatten().map(|(name, value)| (name, vec![value])));
        Ok(samples)
    }

    /// Bytes of the whole.
    const fn total(&self) -> u64 {
        match self.load {
            TransferLoad::Bulk { bytes, .. } => bytes,
            TransferLoad::Lines { count, line, .. }
            | TransferLoad::SlowReader { count, line, .. } => count as u64 * line as u64,
        }
    }

    /// The sender's application, where its connection is open.
    fn send(&mut self) {
        let Some(id) = self.pair.connections[SENDER] else { return };
        while self.pair.hosts[SENDER].poll_tcp_event().is_some() {}
        let is_open =
            self.pair.hosts[SENDER].tcp_info(id).is_some_and(|info| info.state.is_synchronized());
        if !is_open {
            return;
        }
        let begun = *self.begun.get_or_insert(self.pair.now);
        let (piece, allowed) = match self.load {
            TransferLoad::Bulk { bytes, write, .. } => (u64::from(write), bytes),
            TransferLoad::SlowReader { count, line, .. } => {
                (u64::from(line), u64::from(count) * u64::from(line))
            }
            TransferLoad::Lines { count, line, interval_ns } => {
                let passed = self.pair.now.saturating_since(begun).as_ns();
                let lines = (passed / interval_ns + 1).min(count.into());
                let known = self.sent / u64::from(line);
                self.due
                    .extend((known..lines).map(|line| begun + Span::from_ns(interval_ns) * line));
                (u64::from(line), lines * u64::from(line))
            }
        };
        while self.sent < allowed {
            let len = piece.min(allowed - self.sent);
            let bytes = vec![b'x'; usize::try_from(len).unwrap_or(usize::MAX)];
            let Ok(taken @ 1..) = self.pair.hosts[SENDER].tcp_send(self.pair.now, id, &bytes)
            else {
                break;
            };
            self.sent += taken as u64;
            if (taken as u64) < len {
                break;
            }
            // A segment for each line, as terminals have it.
            if !matches!(self.load, TransferLoad::Bulk { .. }) {
                self.pair.collect(SENDER);
            }
        }
    }

    /// The receiver's application.
    fn read(&mut self) {
        let Some(id) = self.pair.accept() else { return };
        while self.pair.hosts[RECEIVER].poll_tcp_event().is_some() {}
        let mut bytes = vec![0; 65_536];
        if let TransferLoad::SlowReader { read, interval_ns, .. } = self.load {
            if self.pair.now < self.next_read {
                return;
            }
            bytes.truncate(read as usize);
            if let Ok(Received::Data(len)) =
                self.pair.hosts[RECEIVER].tcp_receive(self.pair.now, id, &mut bytes)
            {
                self.received += len as u64;
                self.next_read = self.pair.now + Span::from_ns(interval_ns);
            }
            return;
        }
        while let Ok(Received::Data(len)) =
            self.pair.hosts[RECEIVER].tcp_receive(self.pair.now, id, &mut bytes)
        {
            self.received += len as u64;
        }
        if let TransferLoad::Lines { line, .. } = self.load {
            let read = usize::try_from(self.received / u64::from(line)).unwrap_or(usize::MAX);
            let now = self.pair.now;
            let lines = read.saturating_sub(self.delays.len()).min(self.due.len());
            let delays =
                self.due.drain(..lines).map(|due| now.saturating_since(due).as_ns() as f64);
            self.delays.extend(delays);
        }
    }

    /// When an application acts by itself.
    fn application_deadline(&self) -> Option<Instant> {
        match self.load {
            TransferLoad::Bulk { .. } => None,
            TransferLoad::Lines { count, line, interval_ns } => {
                let next = self.sent / u64::from(line);
                let begun = self.begun.filter(|_| next < count.into())?;
                Some(begun + Span::from_ns(interval_ns) * next)
            }
            TransferLoad::SlowReader { .. } => Some(self.next_read),
        }
    }

    /// Moves on to the next moment at which something happens, but not beyond `until`; whether there is one.
    fn step(&mut self, until: Instant) -> bool {
        let (application, received) = (self.application_deadline(), self.received);
        let buffers = &mut self.buffers;
        let admits = |now, bytes: &[u8]| buffers.admit(now, bytes, received);
        self.pair.advance(application.into_iter(), until, admits)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use plumb_harness::spec::{
        PacketBufferPolicy, StackEntry, TransferDefect, TransferPath, TransferTcp,
    };

    use super::*;

    fn samples(tcp: TransferTcp, load: TransferLoad, link: &str, seed: u64) -> NamedSamples {
        let spec = TransferSpec { path: TransferPath::Virtual(link.to_owned()), load, tcp };
        run(&spec, link, Seed(seed)).unwrap()
    }

    fn of(samples: &[(String, Vec<f64>)], response: &str) -> f64 {
        let (_, values) = samples.iter().find(|(name, _)| name == response).unwrap();
        values.iter().sum::<f64>() / values.len() as f64
    }

    const BULK: TransferLoad =
        TransferLoad::Bulk { bytes: 1 << 20, write: 4_096, entry: StackEntry::Call };
    const CLEAN: &str = "rate=10mbit,delay=1ms,limit=64packets";

    #[test]
    fn one_seed_gives_one_result_and_another_another() {
        let lossy = format!("{CLEAN},loss=1%");
        let at = |seed| samples(TransferTcp::default(), BULK, &lossy, seed);
        assert_eq!(at(1), at(1));
        assert_ne!(at(1), at(2));
    }

    #[test]
    fn clean_link_is_filled_and_nothing_is_sent_again() {
        let found = samples(TransferTcp::default(), BULK, CLEAN, 3);
        // 1,448 of 1,514 bytes are payload.
        let share = of(&found, "throughput") / (1.25e6 * 1_448.0 / 1_514.0);
        assert!((0.95..=1.0).contains(&share), "{share}");
        assert!(of(&found, "retransmitted") < 1e-9);
        assert!(of(&found, "payload") > 1_400.0);
    }

    #[test]
    fn line_takes_the_delay_of_the_link() {
        let load = TransferLoad::Lines { count: 20, line: 80, interval_ns: 100_000_000 };
        let delay = of(&samples(TransferTcp::default(), load, CLEAN, 4), "delay");
        assert!((1e6..1.3e6).contains(&delay), "{delay} ns");
    }

    #[test]
    fn small_packets_are_lost_where_each_takes_a_buffer() {
        let load =
            TransferLoad::SlowReader { count: 100, line: 80, read: 80, interval_ns: 18_600_000 };
        let at = |packet_buffers| {
            let receive_buffer = Some(8 << 10);
            let tcp = TransferTcp { packet_buffers, receive_buffer, ..TransferTcp::default() };
            of(&samples(tcp, load, CLEAN, 5), "retransmitted")
        };
        let (ring, fixed) = (at(PacketBufferPolicy::Ring), at(PacketBufferPolicy::Fixed));
        // Tails are probed while their acknowledgements are delayed; nothing is lost by that.
        assert!(fixed > ring + 0.2, "{ring} and {fixed} sent again");
    }

    #[test]
    fn silly_windows_make_small_segments() {
        let load =
            TransferLoad::SlowReader { count: 400, line: 80, read: 40, interval_ns: 5_000_000 };
        let at = |defects| {
            let tcp =
                TransferTcp { defects, receive_buffer: Some(4 << 10), ..TransferTcp::default() };
            of(&samples(tcp, load, CLEAN, 6), "payload")
        };
        let (right, silly) = (at(vec![]), at(vec![TransferDefect::SillyWindow]));
        assert!(silly * 2.0 < right, "{silly} and {right} bytes a segment");
    }
}
