//! Sockets in virtual time for a caller with threads: one that drives time and packets, and one whose calls may block.
//!
//! Time moves only while nobody has something to do at the moment: a call that can return does so first, and its thread asks what
//! time it is before anything else happens.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::IntoRawFd as _;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_conform::outcome::ScriptPosition;
use plumb_conform::script::{CallValue, ScriptOption, SystemCall};
use plumb_conform::settings::{RunSettings, ScriptSystem};
use plumb_conform::sockets::{CallAnswer, CallFault, ScriptSockets};
use plumb_conform::world::VirtualWorld;

use crate::constants::{POLL_EVENTS, errno};

/// Environment variable with the file of the commands that a script ran: `sysctl NAME=VALUE`.
pub const COMMANDS: &str = "PLUMB_PACKETDRILL_COMMANDS";

/// How long a packet is waited for.
const PATIENCE: Span = Span::from_secs(3_600);

/// How much time passes while the caller looks at the clock: it waits for a moment by doing so.
const GLANCE: Span = Span::from_us(1);

/// Nowhere in a script.
const NOWHERE: ScriptPosition = ScriptPosition { line: 0, column: 0 };

/// A number of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorNumber(pub i32);

/// What a call gives.
pub type ShimResult = Result<i64, ErrorNumber>;

/// The stack, its sockets and its clock.
#[derive(Debug)]
pub struct SocketShim {
    state: Mutex<ShimState>,
    changed: Condvar,
    /// The thread that drives time, whose calls must not block.
    driver: ThreadId,
}

#[derive(Debug)]
struct ShimState {
    settings: RunSettings,
    world: VirtualWorld,
    sockets: ScriptSockets,
    /// Sockets were made: the settings are in force.
    is_begun: bool,
    /// Threads whose call blocks, and those of them that have yet to see whether it still does.
    blocked: u32,
    unsettled: u32,
    /// When a call that blocks returns of itself.
    timeout: Option<Instant>,
    /// A thread whose call has returned, and which is to ask for the time.
    returned: Option<ThreadId>,
}

impl SocketShim {
    /// A stack with these settings: `system=freebsd,local_ip=192.0.2.1`, otherwise packetdrill's options.
    ///
    /// # Errors
    /// An unknown system or option.
    pub fn new(flags: &str) -> Result<Self, String> {
        let words = || flags.split(',').filter(|word| !word.is_empty());
        let mut settings = match words().find_map(|word| word.strip_prefix("system=")) {
            None | Some("linux") => RunSettings::new(ScriptSystem::Linux),
            Some("freebsd") => RunSettings::new(ScriptSystem::FreeBsd),
            Some("plain") => RunSettings::new(ScriptSystem::Plain),
            Some(other) => return Err(format!("there is no system '{other}'")),
        };
        let options: Vec<ScriptOption> = words()
            .filter_map(|word| word.split_once('='))
            .filter(|(name, _)| *name != "system")
            .map(|(name, value)| ScriptOption {
                at: NOWHERE,
                name: name.to_owned(),
                value: value.to_owned(),
            })
            .collect();
        settings.apply(&options).map_err(|error| error.to_string())?;
        let state = ShimState {
            world: VirtualWorld::new(&settings, Seed(1)),
            settings,
            sockets: ScriptSockets::default(),
            is_begun: false,
            blocked: 0,
            unsettled: 0,
            timeout: None,
            returned: None,
        };
        let driver = thread::current().id();
        Ok(Self { state: Mutex::new(state), changed: Condvar::new(), driver })
    }

    /// The state, when no other thread is about to ask for the time.
    fn lock(&self) -> MutexGuard<'_, ShimState> {
        let own = thread::current().id();
        let state = self.state.lock().expect("no call panics");
        let is_busy = |state: &mut ShimState| state.returned.is_some_and(|thread| thread != own);
        self.changed.wait_while(state, is_busy).expect("no call panics")
    }

    /// Lets calls that block return, if they can.
    fn settle<'a>(&self, mut state: MutexGuard<'a, ShimState>) -> MutexGuard<'a, ShimState> {
        state.unsettled = state.blocked;
        self.changed.notify_all();
        let is_busy = |state: &mut ShimState| state.unsettled > 0 || state.returned.is_some();
        self.changed.wait_while(state, is_busy).expect("no call panics")
    }

    /// Goes to the stack's next deadline, or that of a call, up to `until`; whether there was one.
    fn step<'a>(
        &self,
        mut state: MutexGuard<'a, ShimState>,
        until: Instant,
    ) -> (MutexGuard<'a, ShimState>, bool) {
        let timeout = state.timeout.filter(|timeout| *timeout <= until);
        let is_moved = state.world.step(timeout.unwrap_or(until));
        if !is_moved && let Some(timeout) = timeout {
            state.world.now = state.world.now.max(timeout);
        }
        (self.settle(state), is_moved || timeout.is_some())
    }

    fn advance(&self, mut state: MutexGuard<'_, ShimState>, until: Instant) {
        loop {
            let (next, is_moved) = self.step(state, until);
            state = next;
            if !is_moved {
                break;
            }
        }
        state.world.now = state.world.now.max(until);
        drop(self.settle(state));
    }

    /// Lets time pass.
    pub fn sleep(&self, time: Span) {
        let state = self.lock();
        let until = state.world.now + time;
        self.advance(state, until);
    }

    /// The time, in microseconds.
    pub fn now_us(&self) -> u64 {
        let mut state = self.lock();
        if state.returned.take().is_some() {
            self.changed.notify_all();
        } else {
            let until = state.world.now + GLANCE;
            self.advance(state, until);
            state = self.lock();
        }
        microseconds(state.world.now)
    }

    /// Hands the stack a packet.
    pub fn inject(&self, bytes: &[u8]) {
        let mut state = self.lock();
        state.world.inject(bytes);
        drop(self.settle(state));
    }

    /// The next packet of the stack and when it was sent, in microseconds; waits for it, and gives up when none can come.
    pub fn next_packet(&self) -> Option<(Vec<u8>, u64)> {
        let mut state = self.lock();
        let until = state.world.now + PATIENCE;
        loop {
            if let Some(fault) = state.world.fault.take() {
                complain(&fault);
                return None;
            }
            if let Some(segment) = state.world.sent.pop_front() {
                return Some((segment.bytes, microseconds(segment.at)));
            }
            let (next, is_moved) = self.step(state, until);
            state = next;
            if !is_moved {
                return None;
            }
        }
    }

    /// Makes a call, and waits for it where it blocks.
    pub fn call(&self, name: &str, arguments: Vec<CallValue>) -> ShimResult {
        let result = CallValue::Any;
        self.perform(&SystemCall {
            at: NOWHERE,
            name: name.to_owned(),
            end: None,
            arguments,
            result,
            errno: None,
        })
    }

    /// Makes a call that gives a descriptor, which nothing else in the process has.
    pub fn open(&self, name: &str, arguments: Vec<CallValue>) -> ShimResult {
        if name == "socket" {
            self.lock().begin();
        }
        // It stays open: packetdrill closes what a script left open, and its number must not be another's.
        let file = File::open("/dev/null").map_err(|_| ErrorNumber(libc::EMFILE))?;
        let fd = i64::from(file.into_raw_fd());
        self.perform(&SystemCall {
            at: NOWHERE,
            name: name.to_owned(),
            end: None,
            arguments,
            result: CallValue::Integer(fd),
            errno: None,
        })
    }

    fn perform(&self, call: &SystemCall) -> ShimResult {
        self.block_on(None, |state, again| {
            let ShimState { world, sockets, settings, .. } = state;
            match sockets.perform(call, again, world, settings) {
                Ok(CallAnswer::Value(value)) => Some(Ok(value)),
                Ok(CallAnswer::Error(name)) => Some(Err(ErrorNumber(errno(name)))),
                Ok(CallAnswer::Blocks) => None,
                Err(fault) => Some(Err(unsupported(fault))),
            }
        })
    }

    /// Tries until there is an answer, or for `timeout`, after which the answer is 0.
    fn block_on(
        &self,
        timeout: Option<Span>,
        mut attempt: impl FnMut(&mut ShimState, bool) -> Option<ShimResult>,
    ) -> ShimResult {
        let mut state = self.lock();
        if let Some(answer) = attempt(&mut state, false) {
            return answer;
        }
        if thread::current().id() == self.driver {
            complain("a call blocks, and the script does not say so");
            return Err(ErrorNumber(libc::EAGAIN));
        }
        let until = timeout.map(|timeout| state.world.now + timeout);
        state.blocked += 1;
        state.timeout = until;
        loop {
            state = self.changed.wait_while(state, |state| state.unsettled == 0).expect("no panic");
            let is_over = until.is_some_and(|until| until <= state.world.now);
            let answer = attempt(&mut state, true).or(is_over.then_some(Ok(0)));
            state.unsettled -= 1;
            if let Some(answer) = answer {
                state.blocked -= 1;
                state.timeout = None;
                state.returned = Some(thread::current().id());
                self.changed.notify_all();
                return answer;
            }
            self.changed.notify_all();
        }
    }

    /// `poll`: descriptors and the events asked for; those that hold replace them.
    pub fn poll(&self, polled: &mut [(i64, i16)], timeout_ms: i32) -> ShimResult {
        let timeout = u64::try_from(timeout_ms).ok().map(Span::from_ms);
        let mut found = Vec::new();
        let count = self.block_on(timeout, |state, _| {
            let ShimState { world, sockets, .. } = state;
            found = polled
                .iter()
                .map(|(fd, events)| {
                    let wanted = POLL_EVENTS.iter().filter(|(bit, _)| events & bit != 0);
                    let wanted: Vec<String> = wanted.map(|(_, name)| (*name).to_owned()).collect();
                    let ready = sockets.ready(*fd, &wanted, world);
                    let bits = POLL_EVENTS.iter().filter(|(_, name)| ready.contains(name));
                    bits.fold(0, |bits, (bit, _)| bits | bit)
                })
                .collect::<Vec<i16>>();
            let count = found.iter().filter(|events| **events != 0).count();
            let count = i64::try_from(count).expect("few descriptors");
            (count > 0 || timeout_ms == 0).then_some(Ok(count))
        });
        for (entry, events) in polled.iter_mut().zip(found) {
            entry.1 = events;
        }
        count
    }

    /// The number that an option has.
    pub fn option(&self, fd: i64, option: &str) -> ShimResult {
        let mut state = self.lock();
        let ShimState { world, sockets, settings, .. } = &mut *state;
        if !sockets.is_open(fd) {
            return Err(ErrorNumber(libc::EBADF));
        }
        if option == "SO_ERROR" {
            return Ok(sockets.take_error(fd, world).map_or(0, |name| errno(name).into()));
        }
        sockets.option_value(fd, option, world, settings).map_err(unsupported)
    }

    /// Bytes in the queue that a command of `ioctl` asks for.
    pub fn queued(&self, fd: i64, command: &str) -> ShimResult {
        let mut state = self.lock();
        let ShimState { world, sockets, .. } = &mut *state;
        if !sockets.is_open(fd) {
            return Err(ErrorNumber(libc::EBADF));
        }
        let queued = sockets.queued(fd, command, world).map_err(unsupported)?;
        queued.ok_or(ErrorNumber(libc::EINVAL))
    }

    /// The ends that sockets have from now on: where they are bound, and where they connect to.
    pub fn set_ends(&self, local: Option<SocketAddr>, remote: Option<SocketAddr>) {
        let settings = &mut self.lock().settings;
        settings.local = local.unwrap_or(settings.local);
        settings.remote = remote.unwrap_or(settings.remote);
    }

    /// The peer of a connection.
    pub fn peer(&self, fd: i64) -> Option<SocketAddr> {
        let state = self.lock();
        state.world.host.tcp_remote(state.sockets.connection(fd)?)
    }
}

impl ShimState {
    /// Puts the settings in force that the script's commands made, before its first socket.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        let file = std::env::var_os(COMMANDS);
        let commands = file.and_then(|file| std::fs::read_to_string(file).ok());
        for command in commands.unwrap_or_default().lines() {
            if let Err(error) = self.settings.run_command(NOWHERE, command) {
                complain(&error.to_string());
            }
        }
        let now = self.world.now;
        self.world = VirtualWorld::new(&self.settings, Seed(1));
        self.world.now = now;
    }
}

fn microseconds(at: Instant) -> u64 {
    at.saturating_since(Instant::ORIGIN).as_ns() / 1_000
}

fn unsupported(fault: CallFault) -> ErrorNumber {
    match fault {
        CallFault::Unsupported(what) | CallFault::Differs(what) => {
            complain(&format!("unsupported: {what}"));
        }
    }
    ErrorNumber(libc::ENOSYS)
}

/// Says something on standard error, where whoever runs packetdrill finds it.
pub fn complain(what: &str) {
    let _ = writeln!(std::io::stderr(), "plumb: {what}");
}
