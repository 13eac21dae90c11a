//! A schedule: what a link becomes, and when, as lines of `WHEN CHANGE`: `5s rate=1mbit`, `90s down loss=2%`.
//!
//! Times count from the link's beginning, and each change comes on top of whatever the link is by then. Blank lines and what follows a
//! `#` are passed over.

use std::collections::VecDeque;
use std::fmt;

use plumb_base::time::{Instant, Span};
use plumb_base::units::quantity::{format_span, parse_span};
use plumb_wire::machine::{DuePacket, PortId, TimedMachine};
use plumb_wire::packet::{Packet, Pool};

use crate::memory::MemoryAllowance;
use crate::report::{Network, NetworkReport};
use crate::spec::{LinkSpec, SpecError};
use crate::text::{FileContents, LinkTextFiles, TextError};

/// What a link becomes, and when: in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSchedule {
    /// Not empty.
    pub steps: Vec<ScheduleStep>,
    /// The link after each step, where nothing else changes it.
    pub links: Vec<LinkSpec>,
    /// What the files contain that the steps name.
    pub contents: FileContents,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleStep {
    /// When, since the beginning.
    pub at: Span,
    /// The change, as [`LinkSpec::changed`] reads it: it comes on top of whatever the link then is.
    pub change: String,
}

impl LinkSchedule {
    /// The schedule that a file of this name contains, for a link that begins as `base`.
    ///
    /// # Errors
    /// What is wrong with which line.
    pub fn parse(
        file: &str,
        content: &str,
        base: &LinkSpec,
        files: &dyn LinkTextFiles,
    ) -> Result<Self, TextError> {
        let mut schedule =
            Self { steps: Vec::new(), links: Vec::new(), contents: FileContents::default() };
        for (index, text) in content.lines().enumerate() {
            let text = text.split('#').next().unwrap_or_default().trim();
            if !text.is_empty() {
                let (line, name) = (index + 1, file);
                schedule.add(text, base, files).map_err(|fault| {
                    TextError::Message(format!("line {line} of the schedule '{name}'{fault}"))
                })?;
            }
        }
        if schedule.steps.is_empty() {
            return Err(TextError::Message(format!(
                "the schedule '{file}' is empty; write lines of WHEN CHANGE, as '5s rate=1mbit'"
            )));
        }
        Ok(schedule)
    }

    /// What is wrong follows the number of the line.
    fn add(
        &mut self,
        text: &str,
        base: &LinkSpec,
        files: &dyn LinkTextFiles,
    ) -> Result<(), String> {
        let (when, change) = text
            .split_once(char::is_whitespace)
            .ok_or(" changes nothing; write WHEN CHANGE, as '5s rate=1mbit'")?;
        let at = parse_span(when).map_err(|error| format!(": {error}"))?;
        if self.steps.last().is_some_and(|before| at < before.at) {
            return Err(" goes back in time; sort the lines by their times".to_owned());
        }
        let before = self.links.last().unwrap_or(base);
        let changed = self.contents.add(change, files).and_then(|()| {
            let after = before.changed(change, &self.contents)?;
            before.check_reconfiguration(&after)?;
            Ok(after)
        });
        self.links.push(changed.map_err(|error| format!(": {error}"))?);
        self.steps.push(ScheduleStep { at, change: change.trim().to_owned() });
        Ok(())
    }
}

/// A network, what it is asked to be, and what it is going to be.
///
/// Each change applies to the network as it is then, so that none undoes another. The steps of a schedule are events
/// like all others: they happen at their moments, however late the driver looks.
#[derive(Debug)]
pub struct ReconfigurableNetwork<N> {
    network: N,
    spec: LinkSpec,
    changes: u64,
    allowance: MemoryAllowance,
    start: Instant,
    steps: VecDeque<ScheduleStep>,
    contents: FileContents,
    refusals: Vec<RefusedStep>,
}

/// A step of the schedule that the network could not take: something else had changed it before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedStep {
    /// When, since the beginning.
    pub at: Span,
    /// What it should have become.
    pub change: String,
    /// Why it did not.
    pub error: TextError,
}

impl<N: Network> ReconfigurableNetwork<N> {
    /// A network that begins as `spec` at `start`, with a schedule or without.
    pub fn new(
        network: N,
        spec: LinkSpec,
        start: Instant,
        schedule: Option<LinkSchedule>,
        allowance: MemoryAllowance,
    ) -> Self {
        let (steps, contents) =
            schedule.map(|schedule| (schedule.steps.into(), schedule.contents)).unwrap_or_default();
        let refusals = Vec::new();
        Self { network, spec, changes: 0, allowance, start, steps, contents, refusals }
    }

    /// What it is asked to be.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// How often that changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The steps that it could not take.
    pub fn refusals(&self) -> &[RefusedStep] {
        &self.refusals
    }

    /// Changes what it is, by all of `changes` in their order, or by none.
    ///
    /// # Errors
    /// A change that cannot be read, or made, or for which there is no memory.
    pub fn change<'a>(
        &mut self,
        now: Instant,
        changes: impl IntoIterator<Item = &'a str>,
        files: &dyn LinkTextFiles,
        pool: &mut Pool,
    ) -> Result<&LinkSpec, TextError> {
        let now = self.advance(now, pool);
        let mut spec = self.spec.clone();
        for change in changes {
            spec = spec.changed(change, files)?;
        }
        self.apply_spec(now, spec, pool)?;
        Ok(&self.spec)
    }

    fn apply_spec(
        &mut self,
        now: Instant,
        spec: LinkSpec,
        pool: &mut Pool,
    ) -> Result<(), SpecError> {
        self.allowance.check(&spec)?;
        self.network.reconfigure(now, &spec, pool)?;
        self.spec = spec;
        self.changes += 1;
        Ok(())
    }

    fn step(&mut self, now: Instant, step: ScheduleStep, pool: &mut Pool) {
        let changed = self.spec.changed(&step.change, &self.contents);
        let made = changed.and_then(|spec| Ok(self.apply_spec(now, spec, pool)?));
        if let Err(why) = made {
            self.refusals.push(RefusedStep { at: step.at, change: step.change, error: why });
        }
    }

    fn next_step(&self) -> Option<Instant> {
        self.steps.front().map(|step| self.start + step.at)
    }
}

impl<N: Network> TimedMachine for ReconfigurableNetwork<N> {
    fn advance(&mut self, now: Instant, pool: &mut Pool) -> Instant {
        while let Some(at) = self.next_step().filter(|at| *at <= now)
            && let Some(step) = self.steps.pop_front()
        {
            let at = self.network.advance(at, pool);
            self.step(at, step, pool);
        }
        self.network.advance(now, pool)
    }

    #[inline]
    fn handle_packet(&mut self, now: Instant, port: PortId, packet: Packet, pool: &mut Pool) {
        self.network.handle_packet(now, port, packet, pool);
    }

    #[inline]
    fn egress(&mut self, port: PortId) -> &mut VecDeque<DuePacket> {
        self.network.egress(port)
    }

    #[inline]
    fn next_departure(&self) -> Option<Instant> {
        // A step may let go what waits.
        [self.network.next_departure(), self.next_step()].into_iter().flatten().min()
    }
}

impl<N: Network> Network for ReconfigurableNetwork<N> {
    fn ports(&self) -> u16 {
        self.network.ports()
    }

    fn reconfigure(
        &mut self,
        now: Instant,
        spec: &LinkSpec,
        pool: &mut Pool,
    ) -> Result<(), SpecError> {
        let now = self.advance(now, pool);
        self.apply_spec(now, spec.clone(), pool)
    }

    fn report(&self, now: Instant) -> NetworkReport {
        // A step that is due has not changed anything yet.
        self.network.report(self.next_step().map_or(now, |step| now.min(step)))
    }

    fn exchange_report(&mut self, now: Instant, is_changed: bool, form: &mut NetworkReport) {
        let until = self.next_step().map_or(now, |step| now.min(step));
        self.network.exchange_report(until, is_changed, form);
    }

    fn clear(&mut self, pool: &mut Pool) {
        self.network.clear(pool);
    }
}

impl fmt::Display for RefusedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, change, error: why } = self;
        write!(f, "the schedule's '{change}' at {} was refused: {why}", format_span(*at))
    }
}

#[cfg(test)]
mod tests {
    use plumb_wire::machine::Machine as _;
    use plumb_wire::machine::Medium;
    use plumb_wire::packet::PoolConfig;

    use super::*;
    use crate::link::{FAR, Link, NEAR};
    use crate::text::NoFiles;

    fn parse(content: &str) -> Result<LinkSchedule, TextError> {
        let base = "rate=10mbit,delay=5ms".parse().expect("a link");
        LinkSchedule::parse("changes", content, &base, &NoFiles)
    }

    #[test]
    fn changes_come_on_top_of_each_other() {
        let schedule =
            parse("# at first\n5s rate=1mbit\n\n90s down loss=2% # and on\n").expect("a schedule");
        let links: Vec<LinkSpec> =
            ["rate=1mbit,delay=5ms", "rate=1mbit,delay=5ms|rate=1mbit,delay=5ms,loss=2%"]
                .map(|text| text.parse().expect("a link"))
                .into();
        assert_eq!(schedule.links, links);
        let step = |secs, change: &str| ScheduleStep {
            at: Span::from_secs(secs),
            change: change.to_owned(),
        };
        assert_eq!(schedule.steps, [step(5, "rate=1mbit"), step(90, "down loss=2%")]);
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_its_line() {
        let error = |content| parse(content).expect_err("no schedule").to_string();
        assert!(error("# nothing\n").contains("'changes' is empty"));
        assert!(
            error("5s rate=1mbit\n4s rate=2mbit\n")
                .contains("line 2 of the schedule 'changes' goes back")
        );
        assert!(error("5s\n").contains("line 1"));
        assert!(error("5 rate=1mbit\n").contains("has no unit"));
        assert!(
            error("5s rate=0\n").contains("line 1 of the schedule 'changes': rate: '0' is zero")
        );
        assert!(error("5s hop 2 rate=1mbit\n").contains("from 1"));
        assert!(error("5s preset no-such\n").contains("line 1"));
    }

    const START: Span = Span::from_secs(3);

    struct Rig {
        steered: ReconfigurableNetwork<Link>,
        pool: Pool,
    }

    impl Rig {
        fn new(link: &str, schedule: &str) -> Self {
            let spec: LinkSpec = link.parse().expect("a link");
            let start = at(0);
            let network = Link::new(&spec, Medium::Ethernet, start).expect("a link");
            let schedule = (!schedule.is_empty())
                .then(|| LinkSchedule::parse("s", schedule, &spec, &NoFiles).expect("a schedule"));
            let allowance =
                MemoryAllowance { frame_len: 1_514, frame_size: 2_048, bytes: 64 << 20 };
            let steered = ReconfigurableNetwork::new(network, spec, start, schedule, allowance);
            Self { steered, pool: Pool::new(PoolConfig { count: 64, size: 2_048, large: 0 }) }
        }

        fn send(&mut self, ms: u64) {
            let mut bytes = [0; 1_250];
            bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
            let packet = self.pool.packet_of(&bytes).expect("memory");
            self.steered.handle_packets(at(ms), NEAR, &mut vec![packet], &mut self.pool);
        }

        fn change(&mut self, ms: u64, change: &str) -> Result<String, String> {
            let changed = self.steered.change(at(ms), [change], &NoFiles, &mut self.pool);
            changed.map(ToString::to_string).map_err(|error| error.to_string())
        }

        /// Milliseconds after the start at which frames were due that have come out.
        fn receive(&mut self, ms: u64) -> Vec<u64> {
            let mut due = Vec::new();
            self.steered.poll_due(at(ms), FAR, &mut due, usize::MAX, &mut self.pool);
            assert_eq!(self.steered.report(at(ms)).violations, []);
            due.into_iter()
                .map(|due| {
                    self.pool.free(due.packet);
                    (due.at - at(0)).as_ns() / 1_000_000
                })
                .collect()
        }
    }

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + START + Span::from_ms(ms)
    }

    fn text(link: &str) -> String {
        link.parse::<LinkSpec>().expect("a link").to_string()
    }

    #[test]
    fn a_step_happens_at_its_moment_however_late_anybody_looks() {
        for looks in [vec![], vec![3, 7, 8], (0..40).collect()] {
            let mut rig = Rig::new("rate=1mbit", "5ms rate=2mbit\n10ms rate=4mbit,delay=2ms\n");
            rig.send(0);
            rig.send(0);
            let mut out = Vec::new();
            for look in looks {
                out.extend(rig.receive(look));
            }
            out.extend(rig.receive(1_000));
            // 5 ms at 1 Mb/s and 2.5 at 2; then 2.5 at 2 Mb/s and 1.25 at 4, and 2 on the way.
            assert_eq!(out, [7, 13]);
            assert_eq!(rig.steered.changes(), 2);
        }
    }

    #[test]
    fn a_step_is_something_to_wake_up_for() {
        let mut rig = Rig::new("rate=1200bit", "5ms rate=none\n");
        rig.send(0);
        assert_eq!(rig.steered.deadline(), Some(at(5)));
        assert_eq!(rig.receive(5), [5]);
        assert_eq!(rig.steered.deadline(), None);
    }

    #[test]
    fn a_step_comes_on_top_of_what_was_changed_meanwhile() {
        let mut rig = Rig::new("rate=10mbit,delay=5ms", "1s rate=1mbit\n2s up delay=7ms\n");
        rig.change(500, "loss=2%").expect("possible");
        rig.receive(1_500);
        assert_eq!(rig.steered.spec().to_string(), text("rate=1mbit,delay=5ms,loss=2%"));
        let both = rig.change(2_500, "down mtu=1400").expect("possible");
        let expected = "rate=1mbit,delay=7ms,loss=2%|rate=1mbit,delay=5ms,loss=2%,mtu=1400";
        assert_eq!(both, text(expected));
        assert_eq!(rig.steered.changes(), 4);
    }

    #[test]
    fn a_step_that_cannot_be_taken_any_more_is_told_and_the_others_are_taken() {
        let mut rig = Rig::new(
            "rate=1mbit,queue=codel",
            "1s target=7ms\n2s rate=2mbit\n3s rate=900gbit,delay=1s\n",
        );
        rig.change(500, "queue=drop-tail").expect("possible");
        rig.receive(4_000);
        let told: Vec<String> = rig.steered.refusals().iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("'target=7ms' at 1s was refused"), "{told:?}");
        assert!(told[1].contains("of memory"), "{told:?}");
        assert_eq!(rig.steered.spec().to_string(), text("rate=2mbit"));
    }

    #[test]
    fn several_changes_are_made_together_or_not_at_all() {
        let mut rig = Rig::new("rate=1mbit", "");
        let (pool, changes) = (&mut rig.pool, ["rate=2mbit", "mtu=1"]);
        assert!(rig.steered.change(at(1), changes, &NoFiles, pool).is_err());
        assert_eq!(
            (rig.steered.spec().to_string(), rig.steered.changes()),
            (text("rate=1mbit"), 0)
        );
        assert!(rig.change(2, "hop 2 rate=3mbit").expect_err("one hop").contains("from 1"));
    }

    #[test]
    fn a_link_with_files_is_changed_beside_them_and_brings_others_with_it() {
        struct ScheduleTestFiles;
        impl LinkTextFiles for ScheduleTestFiles {
            fn read(&self, name: &str) -> Result<String, String> {
                Ok(if name.starts_with('d') { "5ms\n" } else { "10\n" }.to_owned())
            }
        }
        let spec = LinkSpec::parse("rate=trace:t", &ScheduleTestFiles).expect("a link");
        let network = Link::new(&spec, Medium::Ethernet, at(0)).expect("a link");
        let schedule = LinkSchedule::parse("s", "2s rate=trace:u\n", &spec, &ScheduleTestFiles)
            .expect("a schedule");
        let allowance = MemoryAllowance { frame_len: 1_514, frame_size: 2_048, bytes: 64 << 20 };
        let steered = ReconfigurableNetwork::new(network, spec, at(0), Some(schedule), allowance);
        let pool = Pool::new(PoolConfig { count: 64, size: 2_048, large: 0 });
        let mut rig = Rig { steered, pool };
        rig.change(500, "loss=1%").expect("the trace stays");
        assert!(rig.change(600, "delay=replay:d").is_err(), "nobody read it");
        let contents = FileContents::of(["delay=replay:d"], &ScheduleTestFiles).expect("read");
        let changes = ["delay=replay:d"];
        rig.steered.change(at(700), changes, &contents, &mut rig.pool).expect("read before");
        rig.receive(3_000);
        let asked = rig.steered.spec().to_string();
        assert_eq!(asked, "rate=trace:u,queue=drop-tail,limit=1bdp,loss=0.01,delay=replay:d");
        assert_eq!(rig.steered.refusals(), []);
    }
}
