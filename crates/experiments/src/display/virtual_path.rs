//! A display and its client in virtual time: plumb's TCP over a link between them, and processors as slow as asked for.
//!
//! What every step and every message costs is measured first, in real time and without a network, and taken as often as slower
//! processors would take; the run itself is then the same for one seed. So a line of 1200 b/s takes no hour.

use plumb_base::seed::Seed;
use plumb_base::stats::quantile;
use plumb_base::time::{Instant, Span};
use plumb_clock::Stopwatch;
use plumb_display::client::{ClientMode, ClientStep, DisplayClient};
use plumb_display::server::{DisplayLimits, DisplayServer};
use plumb_harness::report::LaunchFault;
use plumb_link::spec::LinkSpec;
use plumb_link::text::NoFiles;
use plumb_stack::tcp::Received;
use plumb_stack::tcp::config::TcpConfig;

use super::measure::DisplayPlan;
use crate::transfer::virtual_hosts::VirtualHosts;

/// Runs that the costs are the medians of.
const CALIBRATIONS: usize = 5;
/// Bytes that the client computes before TCP has taken those before.
const AHEAD: usize = 16 << 10;
/// Bytes that the display reads at once: a segment.
const READ: usize = 1_460;
/// Virtual time after which a drawing is given up.
const GIVEN_UP: Span = Span::from_secs(100_000);
const CLIENT: usize = 0;
const DISPLAY: usize = 1;

/// Processors and the link between them.
#[derive(Clone, Debug)]
pub struct VirtualPath {
    /// The link's text.
    pub link: String,
    /// How many times as long the client's and the display's processors take as this one.
    pub slower: [f64; 2],
    /// Whether both ends share one processor: the client's.
    pub is_shared: bool,
    /// Nanoseconds of this processor that the client computes for each item that it adds.
    pub item_ns: f64,
}

/// What drawing once gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VirtualSample {
    /// Items, or characters of text, a second.
    pub rate: f64,
    /// Bytes of payload both ways.
    pub bytes: f64,
    /// Round trips that depended on each other.
    pub round_trips: f64,
}

/// Nanoseconds that each step takes the client, and each message the display.
#[derive(Clone, Debug)]
pub struct DisplayCosts {
    steps: Vec<f64>,
    messages: Vec<f64>,
}

impl DisplayCosts {
    /// Measures a plan's.
    ///
    /// # Errors
    /// The display refuses it.
    pub fn measure(plan: &DisplayPlan, watch: Stopwatch) -> Result<Self, LaunchFault> {
        let empty = (0..100).map(|_| elapsed(watch, || ())).fold(f64::INFINITY, f64::min);
        let mut runs = Vec::with_capacity(CALIBRATIONS);
        for _ in 0..CALIBRATIONS {
            runs.push(Self::measure_once(plan, watch)?);
        }
        let medians = |of: fn(&Self) -> &Vec<f64>| -> Vec<f64> {
            let count = runs.iter().map(|run| of(run).len()).min().unwrap_or(0);
            let at = |index: usize| -> Vec<f64> { runs.iter().map(|run| of(run)[index]).collect() };
            let median = |index| quantile::of_sorted(&quantile::sorted(&at(index)), 0.5);
            (0..count).map(|index| (median(index) - empty).max(1.0)).collect()
        };
        Ok(Self { steps: medians(|run| &run.steps), messages: medians(|run| &run.messages) })
    }

    fn measure_once(plan: &DisplayPlan, watch: Stopwatch) -> Result<Self, LaunchFault> {
        let (mut client, mut server) = prepared(plan)?;
        let mut costs = Self { steps: Vec::new(), messages: Vec::new() };
        for step in plan.steps().iter().map(Some).chain([None]) {
            let mut cost = elapsed(watch, || match step {
                Some(step) => client.perform(step),
                None => client.finish(),
            });
            let known = server.counts().messages;
            let handled = elapsed(watch, || server.handle(client.output()));
            let messages = server.counts().messages - known;
            let each = handled / messages.max(1) as f64;
            costs.messages.extend((0..messages).map(|_| each));
            client.clear_output();
            if !server.output().is_empty() {
                let mut answered = Ok(());
                cost += elapsed(watch, || answered = client.handle(server.output()));
                answered.map_err(|error| failed(&error))?;
                server.clear_output();
            }
            costs.steps.push(cost);
        }
        Ok(costs)
    }
}

fn failed(why: &impl ToString) -> LaunchFault {
    LaunchFault::Failed(why.to_string())
}

/// Nanoseconds that something takes.
fn elapsed(watch: Stopwatch, work: impl FnOnce()) -> f64 {
    let begun = watch.begin();
    work();
    watch.ns(watch.end().wrapping_sub(begun))
}

/// Both ends with everything done that comes before what is measured, and drawn once.
fn prepared(plan: &DisplayPlan) -> Result<(DisplayClient, DisplayServer), LaunchFault> {
    let mut client = DisplayClient::new(ClientMode::BATCHED);
    let mut server = DisplayServer::new(DisplayLimits::default());
    let warm_up: &[ClientStep] = plan.steps();
    for (steps, mode) in [(plan.before(), ClientMode::BATCHED), (warm_up, ClientMode::BATCHED)] {
        client.set_mode(mode);
        for step in steps {
            client.perform(step);
        }
        client.finish();
        server.handle(client.output());
        client.clear_output();
        client.handle(server.output()).map_err(|error| failed(&error))?;
        server.clear_output();
    }
    client.set_mode(plan.rate.mode());
    Ok((client, server))
}

/// Draws once.
///
/// # Errors
/// The link's text is none, or the drawing does not come to its end.
pub fn draw(
    plan: &DisplayPlan,
    costs: &DisplayCosts,
    path: &VirtualPath,
    seed: Seed,
) -> Result<VirtualSample, LaunchFault> {
    let mut run = VirtualDisplay::new(plan, costs, path, seed)?;
    run.establish()?;
    let counts = run.client.counts();
    let begun = run.pair.now;
    let give_up = begun + GIVEN_UP;
    while !run.is_done() {
        run.work_client();
        run.work_display();
        if run.is_done() || run.pair.now >= give_up || !run.advance() {
            break;
        }
    }
    if !run.is_done() {
        return Err(LaunchFault::Failed("the drawing did not come to its end".to_owned()));
    }
    let seconds = run.pair.now.saturating_since(begun).as_secs_f64();
    let after = run.client.counts();
    let bytes = after.bytes_sent - counts.bytes_sent + after.bytes_received - counts.bytes_received;
    Ok(VirtualSample {
        rate: f64::from(plan.drawing.units()) / seconds.max(1e-12),
        bytes: bytes as f64,
        round_trips: (after.waits - counts.waits) as f64,
    })
}

/// A drawing under way.
struct VirtualDisplay<'a> {
    plan: &'a DisplayPlan,
    costs: &'a DisplayCosts,
    path: &'a VirtualPath,
    client: DisplayClient,
    server: DisplayServer,
    /// Steps that the client has begun; one more than there are is its end.
    step: usize,
    messages: usize,
    /// Bytes that TCP has not taken yet.
    outgoing: [Vec<u8>; 2],
    /// When each end has nothing left to compute.
    free_at: [Instant; 2],
    is_waiting: bool,
    pair: VirtualHosts,
}

impl<'a> VirtualDisplay<'a> {
    fn new(
        plan: &'a DisplayPlan,
        costs: &'a DisplayCosts,
        path: &'a VirtualPath,
        seed: Seed,
    ) -> Result<Self, LaunchFault> {
        let link = LinkSpec::parse(&path.link, &NoFiles).map_err(|error| failed(&error))?;
        let config = TcpConfig { nagle: false, ..TcpConfig::default() };
        let pair = VirtualHosts::new(&link, &config, seed)?;
        let (client, server) = prepared(plan)?;
        Ok(Self {
            plan,
            costs,
            path,
            client,
            server,
            step: 0,
            messages: 0,
            outgoing: [Vec::new(), Vec::new()],
            free_at: [pair.now; 2],
            is_waiting: false,
            pair,
        })
    }

    /// Opens the connection, which is not part of the rate.
    fn establish(&mut self) -> Result<(), LaunchFault> {
        while self.pair.accept().is_none() {
            if !self.advance() {
                return Err(LaunchFault::Failed("the connection was not opened".to_owned()));
            }
        }
        self.free_at = [self.pair.now, self.pair.now];
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.step > self.plan.steps().len() && self.client.is_answered()
    }

    /// Lets an end compute for so long, by its processor.
    fn spend(&mut self, end: usize, cost_ns: f64) {
        let processor = if self.path.is_shared { CLIENT } else { end };
        let cost = Span::from_secs_f64((cost_ns * self.path.slower[processor]).max(1.0) * 1e-9);
        self.free_at[end] = self.pair.now + cost;
        if self.path.is_shared {
            self.free_at = [self.free_at[end]; 2];
        }
    }

    /// Gives TCP what it takes.
    fn send(&mut self, end: usize) {
        let Some(id) = self.pair.connections[end] else { return };
        while self.pair.hosts[end].poll_tcp_event().is_some() {}
        if let Ok(taken) = self.pair.hosts[end].tcp_send(self.pair.now, id, &self.outgoing[end]) {
            self.outgoing[end].drain(..taken);
        }
    }

    fn receive(&mut self, end: usize, bytes: &mut [u8]) -> usize {
        let received = self.pair.connections[end]
            .map(|id| self.pair.hosts[end].tcp_receive(self.pair.now, id, bytes));
        match received {
            Some(Ok(Received::Data(len))) => len,
            _ => 0,
        }
    }

    /// What the client does at this moment: a step, if it is free.
    fn work_client(&mut self) {
        if self.pair.now < self.free_at[CLIENT] {
            return;
        }
        self.send(CLIENT);
        let mut bytes = [0; READ];
        loop {
            let len = self.receive(CLIENT, &mut bytes);
            if len == 0 {
                break;
            }
            // Its cost is part of the step that it answers.
            self.client.handle(&bytes[..len]).ok();
            self.is_waiting = false;
        }
        let steps = self.plan.steps();
        if self.step > steps.len() || self.outgoing[CLIENT].len() >= AHEAD {
            self.note_wait();
            return;
        }
        if !self.client.is_ready() {
            self.note_wait();
            return;
        }
        let mut cost = 0.0;
        while self.step <= steps.len() && self.client.is_ready() {
            cost += self.costs.steps.get(self.step).copied().unwrap_or(0.0);
            match steps.get(self.step) {
                Some(step) => {
                    if matches!(step, ClientStep::Add { .. }) {
                        cost += self.path.item_ns;
                    }
                    self.client.perform(step);
                }
                None => self.client.finish(),
            }
            self.step += 1;
            if self.client.output().len() >= self.plan.write() {
                break;
            }
        }
        self.outgoing[CLIENT].extend_from_slice(self.client.output());
        self.client.clear_output();
        self.spend(CLIENT, cost);
    }

    /// Counts a wait once.
    fn note_wait(&mut self) {
        let waits = !self.client.is_answered() && self.outgoing[CLIENT].is_empty();
        if waits && !self.is_waiting {
            self.client.note_wait();
            self.is_waiting = true;
        }
    }

    /// What the display does at this moment: it reads a segment, if it is free.
    fn work_display(&mut self) {
        if self.pair.now < self.free_at[DISPLAY] {
            return;
        }
        self.send(DISPLAY);
        let mut bytes = [0; READ];
        let len = self.receive(DISPLAY, &mut bytes);
        if len == 0 {
            return;
        }
        let known = self.server.counts().messages;
        self.server.handle(&bytes[..len]);
        let messages = usize::try_from(self.server.counts().messages - known).unwrap_or(0);
        let costs = self.costs.messages.iter().skip(self.messages).take(messages);
        let cost: f64 = costs.sum();
        self.messages += messages;
        self.outgoing[DISPLAY].extend_from_slice(self.server.output());
        self.server.clear_output();
        self.spend(DISPLAY, cost);
    }

    /// Moves on to the next moment at which something happens; whether there is one.
    fn advance(&mut self) -> bool {
        let until = self.pair.now + GIVEN_UP;
        self.pair.advance(self.free_at.into_iter(), until, |_, _| true)
    }
}

#[cfg(test)]
mod tests {
    use plumb_display::workload::{DisplayDrawing, DisplayRate};

    use super::*;

    fn rate(rate: DisplayRate, link: &str, slower: [f64; 2], is_shared: bool) -> VirtualSample {
        let plan = DisplayPlan::new(DisplayDrawing::FlatArray, rate);
        let costs = DisplayCosts {
            steps: vec![100.0; plan.steps().len() + 1],
            messages: vec![1_000.0; 2 * plan.steps().len() + 2],
        };
        let path = VirtualPath { link: link.to_owned(), slower, is_shared, item_ns: 0.0 };
        draw(&plan, &costs, &path, Seed(1)).unwrap()
    }

    const SLOW: &str = "rate=1200bit,limit=1000packets,delay=0";
    const FAR_AWAY: &str = "rate=10mbit,limit=1000packets,delay=50ms";

    #[test]
    fn twenty_bytes_an_item_fill_a_telephone_line() {
        let sample = rate(DisplayRate::Construction, SLOW, [1.0; 2], false);
        // 150 bytes a second; headers, and what TCP sends again too early on so slow a line, take the rest.
        assert!((3.0..7.5).contains(&sample.rate), "{sample:?}");
    }

    #[test]
    fn waiting_takes_a_round_trip_for_each_message() {
        let waiting = rate(DisplayRate::Incremental, FAR_AWAY, [1.0; 2], false);
        assert!((4.5..5.0).contains(&waiting.rate), "two of 100 ms an item: {waiting:?}");
        assert!((1_561.0..1_570.0).contains(&waiting.round_trips), "{waiting:?}");
        let pipelined = rate(DisplayRate::PipelinedIncremental, FAR_AWAY, [1.0; 2], false);
        assert!(pipelined.rate > 100.0 * waiting.rate, "{pipelined:?}");
        assert!(pipelined.round_trips < 3.0, "{pipelined:?}");
    }

    #[test]
    fn a_slower_processor_slows_what_waits_for_it() {
        let fast = "rate=10gbit,limit=1000packets,delay=0";
        let at = |slower, is_shared| {
            rate(DisplayRate::PipelinedIncremental, fast, slower, is_shared).rate
        };
        let plain = at([1_000.0, 1_000.0], false);
        let slow_display = plain / at([1_000.0, 2_000.0], false);
        assert!(
            (1.9..2.1).contains(&slow_display),
            "the display is the bottleneck: {slow_display}"
        );
        let slow_client = plain / at([2_000.0, 1_000.0], false);
        assert!((0.95..1.05).contains(&slow_client), "the client is not: {slow_client}");
        let shared = plain / at([1_000.0, 1_000.0], true);
        assert!((1.05..1.2).contains(&shared), "one processor does the work of both: {shared}");
    }
}
