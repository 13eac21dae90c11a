//! Runs a script: its events in order, with the stack's own between them.

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::tcp::TcpFlags;

use crate::code::CodeNames;
use crate::outcome::{ScriptOutcome, ScriptPosition};
use crate::packets::ConnectionMap;
use crate::script::{
    EventTime, PacketBody, PacketSpec, ParsedScript, ScriptAction, ScriptEvent, SystemCall, TcpSpec,
};
use crate::settings::RunSettings;
use crate::sockets::ScriptSockets;
use crate::world::VirtualWorld;
use crate::{packets, parser};

mod assertions;
mod calls;
mod segments;

/// Parses and runs a script.
pub fn run(text: &str, settings: &RunSettings, seed: Seed) -> ScriptOutcome {
    let script = match parser::parse(text) {
        Ok(script) => script,
        Err(error) => return error.into(),
    };
    match ScriptRunner::start(&script, settings, seed).and_then(|mut runner| runner.run(&script)) {
        Ok(()) => ScriptOutcome::Passed,
        Err(outcome) => outcome,
    }
}

/// Longest time without an event of the script that is waited for a packet that may come at any time.
const PATIENCE: Span = Span::from_secs(86_400);

/// What the script's packets belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderTest {
    /// No socket, or one that listens: the next packet that is injected begins a connection.
    Passive,
    /// A socket that connects: its SYN tells its port.
    Connecting,
    /// A connection.
    Connection,
}

/// A call that has not returned.
#[derive(Debug)]
struct PendingCall {
    call: SystemCall,
    /// When the script says that it returns.
    end: Instant,
    /// When it started, from which its tolerance is reckoned.
    start: Instant,
    /// When it returns of itself.
    timeout: Option<Instant>,
}

struct ScriptRunner {
    settings: RunSettings,
    world: VirtualWorld,
    sockets: ScriptSockets,
    map: ConnectionMap,
    under_test: UnderTest,
    /// Ports of the script's ends of connections to the stack, counted upwards.
    next_port: u16,
    names: CodeNames,
    pending: Option<PendingCall>,
    start: Instant,
    /// When the event before was to happen.
    last: Instant,
    last_was_inbound: bool,
}

type StepResult = Result<(), ScriptOutcome>;

fn failed<T>(at: ScriptPosition, reason: impl Into<String>) -> Result<T, ScriptOutcome> {
    Err(ScriptOutcome::Failed { at, reason: reason.into() })
}

impl ScriptRunner {
    fn start(
        script: &ParsedScript,
        settings: &RunSettings,
        seed: Seed,
    ) -> Result<Self, ScriptOutcome> {
        let mut settings = settings.clone();
        settings.apply(&script.options)?;
        for (at, command) in &script.setup {
            settings.run_command(*at, command)?;
        }
        let world = VirtualWorld::new(&settings, seed);
        let start = world.now;
        let map = ConnectionMap::new(settings.local, settings.remote);
        Ok(Self {
            settings,
            world,
            sockets: ScriptSockets::default(),
            map,
            under_test: UnderTest::Passive,
            next_port: 40_000,
            names: CodeNames::default(),
            pending: None,
            start,
            last: start,
            last_was_inbound: false,
        })
    }

    fn run(&mut self, script: &ParsedScript) -> StepResult {
        for event in &script.events {
            self.event(event)?;
            if let Some(fault) = self.world.fault.take() {
                return failed(event.at, fault);
            }
        }
        self.finish_pending()
    }

    /// The moment, or the moments, of an event; both are the same unless it is a range.
    fn when(&self, event: &ScriptEvent, is_inbound: bool) -> (Instant, Instant) {
        // Injected packets that follow each other keep their distance, whatever came of the first.
        let origin = if is_inbound && self.last_was_inbound { self.last } else { self.world.now };
        match event.time {
            EventTime::Absolute(span) => (self.start + span, self.start + span),
            EventTime::Relative(span) => (origin + span, origin + span),
            EventTime::AbsoluteRange(from, to) => (self.start + from, self.start + to),
            EventTime::RelativeRange(from, to) => (origin + from, origin + to),
            EventTime::Any => (self.world.now, self.world.now + PATIENCE),
        }
    }

    fn event(&mut self, event: &ScriptEvent) -> StepResult {
        let is_inbound = matches!(event.action, ScriptAction::Inbound(_));
        let (from, to) = self.when(event, is_inbound);
        match &event.action {
            ScriptAction::Outbound(packet) => self.expect(event, packet, (from, to))?,
            ScriptAction::Inbound(packet) => {
                self.wait(event.at, from)?;
                self.inject(event.at, packet)?;
            }
            ScriptAction::Call(call) => {
                if self.pending.is_some() {
                    self.finish_pending()?;
                }
                let origin = self.world.now;
                self.wait(event.at, from)?;
                let end = call.end.map(|end| match event.time {
                    EventTime::Absolute(_) => self.start + end,
                    _ => origin + end,
                });
                self.call(call, end)?;
            }
            ScriptAction::Command(command) => {
                self.wait(event.at, from)?;
                self.settings.run_command(event.at, command)?;
            }
            ScriptAction::Code(statements) => {
                self.wait(event.at, from)?;
                self.check_code(event.at, statements)?;
            }
        }
        // An event without a time happened when it did.
        self.last = if event.time == EventTime::Any { self.world.now } else { from };
        self.last_was_inbound = is_inbound;
        Ok(())
    }

    /// Lets the stack do what is due before `until`, and goes there.
    fn wait(&mut self, at: ScriptPosition, until: Instant) -> StepResult {
        if until + self.tolerance(until) < self.world.now {
            return failed(
                at,
                format!(
                    "it is {} already, and this was to happen at {}",
                    self.time(self.world.now),
                    self.time(until)
                ),
            );
        }
        loop {
            self.try_pending()?;
            // Timers that expire at the moment of an event come before it.
            if !self.step(until) {
                break;
            }
        }
        self.world.now = self.world.now.max(until);
        self.try_pending()
    }

    /// Goes to the next thing that happens of itself, if it is not later than `until`.
    fn step(&mut self, until: Instant) -> bool {
        let timeout = self.pending.as_ref().and_then(|pending| pending.timeout);
        let timeout = timeout.filter(|timeout| *timeout <= until && *timeout > self.world.now);
        let limit = timeout.map_or(until, |timeout| timeout.min(until));
        if self.world.step(limit) {
            return true;
        }
        if let Some(timeout) = timeout {
            self.world.now = timeout;
            return true;
        }
        false
    }

    /// How far from its time an event may happen (packetdrill: the larger of a time, and a part of what has passed).
    fn tolerance(&self, at: Instant) -> Span {
        let passed = at.saturating_since(self.last);
        let part = Span::from_secs_f64(passed.as_secs_f64() * self.settings.tolerance_ratio);
        self.settings.tolerance.max(part)
    }

    /// A time of the script, in seconds.
    fn time(&self, at: Instant) -> String {
        format!("{:.6} s", at.saturating_since(self.start).as_secs_f64())
    }

    /// Injects a packet.
    fn inject(&mut self, at: ScriptPosition, packet: &PacketSpec) -> StepResult {
        let bytes = match &packet.body {
            PacketBody::Icmp(spec) => packets::inbound_icmp(spec, &self.map)?,
            PacketBody::Tcp(segment) => {
                self.begin_passive(segment);
                let infers = self.settings.infers_echoes;
                match packets::inbound(packet, segment, &self.map, infers) {
                    Ok(bytes) => bytes,
                    Err(reason) => return failed(at, reason),
                }
            }
        };
        self.world.inject(&bytes);
        self.try_pending()
    }

    /// The first packet of a connection to the stack tells the script's numbers.
    fn begin_passive(&mut self, segment: &TcpSpec) {
        let is_syn = segment.flags.contains(TcpFlags::SYN);
        if self.under_test == UnderTest::Passive {
            let mut remote = self.settings.remote;
            remote.set_port(self.next_port);
            self.next_port += 1;
            self.map = ConnectionMap::new(self.settings.local, remote);
            self.under_test = UnderTest::Connection;
        } else if !is_syn || self.map.is_remote_known {
            return;
        }
        self.map.remote_isn = segment.seq;
        self.map.is_remote_known = true;
    }
}
