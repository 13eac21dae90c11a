//! A link at work: its driver on a thread of its own, and the way to talk to it.
//!
//! Left out: where its devices come from.

use std::sync::mpsc;
use std::thread::JoinHandle;

use plumb_base::time::Instant;
use plumb_host::clock::Timeline;
use plumb_host::device::{Device, DeviceError};
use plumb_host::emulate::{
    Control, DriverReport, Emulator, Inside, Interface, Options, take_precedence,
};
use plumb_host::lab::Seats;
use plumb_link::network::Network;
use plumb_link::report::NetworkReport;
use plumb_link::spec::{LinkSpec, SpecError};
use plumb_wire::machine::Port;

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
}

/// A link that runs.
#[derive(Debug)]
pub struct Course<N: Network> {
    control: Control<Inside<N>>,
    thread: JoinHandle<Result<(), DeviceError>>,
}

impl<N: Network + Send + 'static> Course<N> {
    /// Starts it on a thread of its own, which measures its precision first, and returns when frames
    /// pass. `make` makes the network from the medium's moment of origin.
    ///
    /// # Errors
    /// There are no more threads or descriptors.
    pub fn start(
        make: impl FnOnce(Instant) -> Result<N, Problem>,
        devices: Vec<End>,
        interfaces: Vec<Interface>,
        room: Room,
        timeline: Timeline,
        options: Options,
        seats: Option<Seats>,
    ) -> Result<Self, Problem> {
        let cannot = |error| Problem::trouble("cannot start the link's driver").because(error);
        let network = make(timeline.now())?;
        let (tell, told) = mpsc::sync_channel(1);
        let drive = move || {
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
            tell.send(Ok(emulator.control())).ok();
            emulator.run()
        };
        let thread =
            std::thread::Builder::new().name("link".to_owned()).spawn(drive).map_err(cannot)?;
        let gone = |_| Problem::trouble("the link's driver ended before it began");
        let control = told.recv().map_err(gone)?.map_err(cannot)?;
        Ok(Self { control, thread })
    }

    /// A way to talk to it from any thread.
    pub fn handle(&self) -> Handle<N> {
        Handle { control: self.control.clone() }
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
            Err(_) => Err(failed("its driver has a bug, which it has named".to_owned())),
        }
    }
}

/// A way to talk to a link that runs.
#[derive(Debug)]
pub struct Handle<N: Network> {
    control: Control<Inside<N>>,
}

impl<N: Network> Clone for Handle<N> {
    fn clone(&self) -> Self {
        Self { control: self.control.clone() }
    }
}

/// What everything but the driver needs of a link that runs, whatever it is inside.
pub trait Talk: Send + Sync {
    /// How it is; none once it has ended.
    fn state(&self) -> Option<State>;

    /// Becomes what `spec` says; the inner result is the network's.
    fn set(&self, spec: LinkSpec) -> Option<Result<(), SpecError>>;
}

impl<N: Network + Send + 'static> Handle<N> {
    /// As [`Talk::state`].
    pub fn state(&self) -> Option<State> {
        let ask = |inside: &mut Inside<N>| State {
            driver: inside.report(),
            network: inside.network.report(inside.now),
        };
        self.control.ask(ask).ok()
    }
}

impl<N: Network + Send + 'static> Talk for Handle<N> {
    fn state(&self) -> Option<State> {
        Self::state(self)
    }

    fn set(&self, spec: LinkSpec) -> Option<Result<(), SpecError>> {
        self.control.set(spec).ok()
    }
}
