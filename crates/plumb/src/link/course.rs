//! A link at work: its driver on a thread of its own, and the way to talk to it.
//!
//! Left out: where its devices come from.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use plumb_base::time::Instant;
use plumb_host::clock::{Timeline, monotonic_ns};
use plumb_host::device::{Device, DeviceError};
use plumb_host::emulate::{
    Control, DriverReport, Emulator, Inside, Interface, Options, take_precedence,
};
use plumb_host::lab::Seats;
use plumb_link::network::Network;
use plumb_link::report::NetworkReport;
use plumb_link::schedule::Schedule;
use plumb_link::spec::LinkSpec;
use plumb_link::steered::Steered;
use plumb_link::text::{Contents, TextError};
use plumb_wire::machine::Port;

use super::control::Present;
use super::room::Room;
use crate::problem::Problem;

/// A device that may be driven by another thread.
pub type End = Box<dyn Device + Send>;

/// What is known of a link at one moment.
#[derive(Clone, Debug)]
pub struct State {
    /// How it is driven.
    pub driver: DriverReport,
    /// What it did.
    pub network: NetworkReport,
    /// What it is asked to be.
    pub asked: LinkSpec,
    /// How often that changed.
    pub changes: u64,
    /// What of its schedule it has refused, and why.
    pub refusals: Vec<String>,
}

impl State {
    /// All of it.
    fn of<N: Network>(inside: &mut Inside<Steered<N>>) -> Self {
        Self {
            driver: inside.report(),
            network: inside.network.report(inside.now),
            asked: inside.network.spec().clone(),
            changes: inside.network.changes(),
            refusals: refusals(inside),
        }
    }

    /// The same with empty distributions, for [`State::fill`].
    fn form(&self) -> Self {
        Self { driver: self.driver.form(), network: self.network.form(), ..self.clone() }
    }

    /// What is known now, its distributions since this was last done: by the driver, whose frames wait meanwhile, so that
    /// nothing is copied that may be long, and no memory asked for but where the link became another.
    fn fill<N: Network>(&mut self, inside: &mut Inside<Steered<N>>) {
        let is_changed = self.changes != inside.network.changes();
        inside.hand_over(&mut self.driver);
        inside.network.hand_over(inside.now, is_changed, &mut self.network);
        if is_changed {
            self.asked = inside.network.spec().clone();
            self.changes = inside.network.changes();
        }
        if self.refusals.len() != inside.network.refusals().len() {
            self.refusals = refusals(inside);
        }
    }

    /// Adds the distributions of what was known before.
    fn add_earlier(&mut self, earlier: &Self) {
        self.driver.add_earlier(&earlier.driver);
        self.network.add_earlier(&earlier.network);
    }
}

fn refusals<N: Network>(inside: &Inside<Steered<N>>) -> Vec<String> {
    inside.network.refusals().iter().map(ToString::to_string).collect()
}

/// What a link shall be: at first, later, and how much memory its frames have.
#[derive(Debug)]
pub struct Asked {
    /// As it begins.
    pub spec: LinkSpec,
    /// What it becomes, counted from its beginning.
    pub schedule: Option<Schedule>,
    /// For its frames.
    pub room: Room,
}

/// A link that runs.
#[derive(Debug)]
pub struct Course<N: Network> {
    control: Control<Inside<Steered<N>>>,
    known: Arc<Mutex<State>>,
    thread: JoinHandle<Result<(), DeviceError>>,
    began_ns: u64,
    /// Says why it has ended where nobody asked for that; taken by who listens.
    early: Option<Receiver<String>>,
}

/// Tells of the end of a driver that has a bug.
#[derive(Debug)]
struct Alarm(Sender<String>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send(BUG.to_owned()).ok();
        }
    }
}

/// Why a driver ended that panicked.
const BUG: &str = "its driver has a bug, which it has named";

impl<N: Network + Send + 'static> Course<N> {
    /// Starts it on a thread of its own, which measures its precision first, and returns when frames
    /// pass. `make` makes the network that begins as asked, from its moment of origin: all that counts from a
    /// link's beginning counts from there.
    ///
    /// # Errors
    /// There are no more threads or descriptors.
    pub fn start(
        make: impl FnOnce(&LinkSpec, Instant) -> Result<N, Problem>,
        asked: Asked,
        devices: Vec<End>,
        interfaces: Vec<Interface>,
        timeline: Timeline,
        options: Options,
        seats: Option<Seats>,
    ) -> Result<Self, Problem> {
        let cannot = |error| Problem::trouble("cannot start the link's driver").because(error);
        let (start, began_ns) = (timeline.now(), monotonic_ns());
        let network = make(&asked.spec, start)?;
        let Asked { spec, schedule, room } = asked;
        let network = Steered::new(network, spec, start, schedule, room.allowance());
        let (tell, told) = mpsc::sync_channel(1);
        let (alarm, early) = mpsc::channel();
        let drive = move || {
            let alarm = Alarm(alarm);
            // Refused, it runs where the kernel likes, and its lateness shows it.
            seats.and_then(|seats| seats.take_own().ok());
            take_precedence();
            let emulator = Emulator::new(network, devices, room.pool(), timeline, options);
            let mut emulator = match emulator {
                Ok(emulator) => emulator,
                Err(error) => {
                    tell.send(Err(error)).ok();
                    return Ok(());
                }
            };
            for (index, interface) in interfaces.into_iter().enumerate() {
                let port = u16::try_from(index).expect("as many interfaces as devices");
                emulator.watch(Port(port), interface);
            }
            tell.send(Ok((emulator.control(), State::of(emulator.inside())))).ok();
            let ended = emulator.run();
            if let Err(error) = &ended {
                alarm.0.send(error.to_string()).ok();
            }
            ended
        };
        let thread =
            std::thread::Builder::new().name("link".to_owned()).spawn(drive).map_err(cannot)?;
        let gone = |_| Problem::trouble("the link's driver ended before it began");
        let (control, state) = told.recv().map_err(gone)?.map_err(cannot)?;
        let known = Arc::new(Mutex::new(state));
        Ok(Self { control, known, thread, began_ns, early: Some(early) })
    }

    /// Has `tell` hear why the link has ended, should it before [`Course::finish`]: at once, on a thread
    /// of its own.
    ///
    /// # Errors
    /// There are no more threads.
    pub fn on_early_end(
        &mut self,
        tell: impl FnOnce(&str) + Send + 'static,
    ) -> Result<(), Problem> {
        let Some(early) = self.early.take() else { return Ok(()) };
        let listen = move || {
            if let Ok(why) = early.recv() {
                tell(&why);
            }
        };
        let spawned = std::thread::Builder::new().name("early end".to_owned()).spawn(listen);
        spawned
            .map(drop)
            .map_err(|error| Problem::trouble("cannot watch over the link's driver").because(error))
    }

    /// When it began, by the clock that only rises.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// A way to talk to it from any thread.
    pub fn handle(&self) -> Handle<N> {
        Handle { control: self.control.clone(), known: Arc::clone(&self.known) }
    }

    /// Ends it; how it was at the end.
    ///
    /// # Errors
    /// A device failed, or its driver has a bug.
    pub fn finish(self) -> Result<State, Problem> {
        let state = self.handle().state();
        self.control.stop();
        let ended = self.thread.join();
        let failed = |why: String| {
            Problem::trouble("the link ended before the command did")
                .because(why)
                .fix("what came after went nowhere: run it again")
        };
        match ended {
            Ok(Ok(())) => state.ok_or_else(|| failed("its driver does not answer".to_owned())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(BUG.to_owned())),
        }
    }
}

/// A way to talk to a link that runs.
#[derive(Debug)]
pub struct Handle<N: Network> {
    control: Control<Inside<Steered<N>>>,
    /// What the driver told last, with the distributions of all that it told.
    known: Arc<Mutex<State>>,
}

impl<N: Network> Clone for Handle<N> {
    fn clone(&self) -> Self {
        Self { control: self.control.clone(), known: Arc::clone(&self.known) }
    }
}

/// What everything but the driver needs of a link that runs, whatever it is inside.
pub trait Talk: Send + Sync {
    /// How it is; none once it has ended.
    fn state(&self) -> Option<State>;

    /// What it is asked to be: all that is cheap to know. None once it has ended.
    fn present(&self) -> Option<Present>;

    /// Changes by all of `changes` or by none; what it then is, or why it is not. None once it has ended.
    fn change(&self, changes: Vec<String>, files: Contents) -> Option<Result<LinkSpec, TextError>>;
}

impl<N: Network + Send + 'static> Handle<N> {
    /// As [`Talk::state`].
    pub fn state(&self) -> Option<State> {
        // One after the other: what the driver tells one is to be known by all.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut form = known.form();
        let ask = |inside: &mut Inside<Steered<N>>| {
            form.fill(inside);
            form
        };
        let mut state = self.control.ask(ask).ok()?;
        state.add_earlier(&known);
        self.control.complete(&mut state.driver);
        known.clone_from(&state);
        Some(state)
    }
}

impl<N: Network + Send + 'static> Talk for Handle<N> {
    fn state(&self) -> Option<State> {
        Self::state(self)
    }

    fn present(&self) -> Option<Present> {
        let ask = |inside: &mut Inside<Steered<N>>| {
            (inside.network.spec().clone(), inside.network.changes())
        };
        let (spec, changes) = self.control.ask(ask).ok()?;
        Some(Present { link: spec.to_string(), changes })
    }

    fn change(&self, changes: Vec<String>, files: Contents) -> Option<Result<LinkSpec, TextError>> {
        let ask = move |inside: &mut Inside<Steered<N>>| {
            let Inside { now, network, pool, .. } = inside;
            let changes = changes.iter().map(String::as_str);
            network.change(*now, changes, &files, pool).cloned()
        };
        self.control.ask(ask).ok()
    }
}
