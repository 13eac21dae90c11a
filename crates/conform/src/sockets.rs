//! The descriptors of a script, and the system calls on them.

use std::collections::BTreeMap;

use plumb_base::time::Span;
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{ListenerId, Received, TcpId, TcpInfo, TcpSocketError, TcpState, WriteEnd};

use crate::script::{CallValue, SystemCall};
use crate::settings::RunSettings;
use crate::world::VirtualWorld;

mod options;
mod polling;
mod values;

use polling::EventPoller;
use values::{flags_of, is_null, length, number};

/// What a system call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// It returned this.
    Value(i64),
    /// It failed with this error.
    Error(&'static str),
    /// It waits.
    Blocks,
}

/// Why a call cannot be judged by its return value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// What it gave beside its return value is not as expected.
    Differs(String),
    /// It needs what is not there.
    Unsupported(String),
}

type CallResult = Result<CallAnswer, CallFault>;

/// The descriptors of a script, by the numbers that it has for them.
#[derive(Debug, Default)]
pub struct ScriptSockets {
    open: BTreeMap<i64, SocketDescriptor>,
    /// Bytes that the call that blocks has moved.
    progress: usize,
}

/// A descriptor.
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[derive(Debug)]
struct SocketDescriptor {
    kind: DescriptorKind,
    is_nonblocking: bool,
    tcp: TcpConfig,
    /// The error of the connection was reported.
    is_error_taken: bool,
    /// Shut down for reading.
    is_read_shut: bool,
    /// Closing sends a RST.
    aborts: bool,
    /// TCP_NOTSENT_LOWAT.
    unsent_mark: Option<u64>,
    /// TCP_INQ.
    reports_queue: bool,
    /// TCP_CORK.
    is_corked: bool,
}

#[derive(Debug)]
enum DescriptorKind {
    Fresh {
        is_bound: bool,
    },
    /// And a connection that was taken from its queue to see whether there is one.
    Listener(ListenerId, Option<TcpId>),
    Connection(TcpId),
    Poller(EventPoller),
}

impl SocketDescriptor {
    fn new(kind: DescriptorKind, tcp: TcpConfig) -> Self {
        Self {
            kind,
            is_nonblocking: false,
            tcp,
            is_error_taken: false,
            is_read_shut: false,
            aborts: false,
            unsent_mark: None,
            reports_queue: false,
            is_corked: false,
        }
    }
}

fn unsupported<T>(what: impl Into<String>) -> Result<T, CallFault> {
    Err(CallFault::Unsupported(what.into()))
}

#[expect(clippy::unnecessary_wraps, reason = "what every call gives")]
const fn value(value: i64) -> CallResult {
    Ok(CallAnswer::Value(value))
}

#[expect(clippy::unnecessary_wraps, reason = "what every call gives")]
const fn error(errno: &'static str) -> CallResult {
    Ok(CallAnswer::Error(errno))
}

/// Name of the error that an application gets.
pub fn errno(error: TcpSocketError) -> &'static str {
    match error {
        TcpSocketError::Reset => "ECONNRESET",
        TcpSocketError::Refused => "ECONNREFUSED",
        TcpSocketError::TimedOut => "ETIMEDOUT",
        TcpSocketError::Unreachable(_) => "EHOSTUNREACH",
        TcpSocketError::Shutdown => "EPIPE",
        TcpSocketError::Closed => "ENOTCONN",
    }
}

impl ScriptSockets {
    /// Begins a call, or goes on with one that blocks (`again`).
    ///
    /// # Errors
    /// [`CallFault`].
    pub fn perform(
        &mut self,
        call: &SystemCall,
        again: bool,
        world: &mut VirtualWorld,
        settings: &RunSettings,
    ) -> CallResult {
        if !again {
            self.progress = 0;
        }
        let answer = match call.name.as_str() {
            "socket" => self.socket(call, settings),
            "epoll_create" | "epoll_create1" => {
                let kind = DescriptorKind::Poller(EventPoller::default());
                self.add(call, SocketDescriptor::new(kind, settings.tcp.clone()))
            }
            "poll" => self.poll(call, world),
            name => {
                let fd = number(call, 0)?;
                if !self.open.contains_key(&fd) {
                    return error("EBADF");
                }
                match name {
                    "bind" => self.bind(fd),
                    "listen" => self.listen(fd, call, world, settings),
                    "accept" | "accept4" => self.accept(fd, call, world),
                    "connect" => self.connect(fd, again, world, settings),
                    "write" | "send" | "sendto" | "sendmsg" | "writev" => {
                        self.send(fd, call, world)
                    }
                    "read" | "recv" | "recvfrom" | "recvmsg" | "readv" => {
                        self.receive(fd, call, world)
                    }
                    "close" => self.close(fd, world),
                    "shutdown" => self.shutdown(fd, call, world),
                    "fcntl" => self.fcntl(fd, call),
                    "ioctl" => self.ioctl(fd, call, world),
                    "getsockopt" => self.getsockopt(fd, call, world, settings),
                    "setsockopt" => self.setsockopt(fd, call, world, settings),
                    "epoll_ctl" => self.epoll_ctl(fd, call),
                    "epoll_wait" => self.epoll_wait(fd, call, world),
                    _ => unsupported(format!("the system call {name}")),
                }
            }
        };
        world.collect();
        answer
    }

    /// Adds a descriptor with the number that the script expects.
    fn add(&mut self, call: &SystemCall, descriptor: SocketDescriptor) -> CallResult {
        let CallValue::Integer(fd) = call.result else {
            return unsupported("a descriptor without a number");
        };
        if fd < 0 {
            // The call was to fail: any number shows that it did not.
            return value(i64::MAX);
        }
        if self.open.contains_key(&fd) {
            return Err(CallFault::Differs(format!("the descriptor {fd} is open already")));
        }
        self.open.insert(fd, descriptor);
        value(fd)
    }

    fn at(&mut self, fd: i64) -> &mut SocketDescriptor {
        self.open.get_mut(&fd).expect("perform() has looked it up")
    }

    fn socket(&mut self, call: &SystemCall, settings: &RunSettings) -> CallResult {
        let kinds = call.arguments.get(1).map(flags_of).unwrap_or_default();
        if !kinds.contains(&"SOCK_STREAM") {
            return unsupported("a socket that is not SOCK_STREAM");
        }
        let kind = DescriptorKind::Fresh { is_bound: false };
        let mut descriptor = SocketDescriptor::new(kind, settings.tcp.clone());
        descriptor.is_nonblocking = kinds.contains(&"SOCK_NONBLOCK");
        self.add(call, descriptor)
    }

    fn bind(&mut self, fd: i64) -> CallResult {
        match &mut self.at(fd).kind {
            DescriptorKind::Fresh { is_bound } if !*is_bound => {
                *is_bound = true;
                value(0)
            }
            _ => error("EINVAL"),
        }
    }

    fn listen(
        &mut self,
        fd: i64,
        call: &SystemCall,
        world: &mut VirtualWorld,
        settings: &RunSettings,
    ) -> CallResult {
        let backlog = usize::try_from(number(call, 1)?).unwrap_or(1).max(1);
        let descriptor = self.at(fd);
        match descriptor.kind {
            DescriptorKind::Fresh { .. } => {}
            DescriptorKind::Listener(..) => return value(0),
            _ => return error("EINVAL"),
        }
        let config = settings.connection(&descriptor.tcp);
        match world.host.tcp_listen(settings.local, backlog, config) {
            Ok(id) => {
                descriptor.kind = DescriptorKind::Listener(id, None);
                value(0)
            }
            Err(_) => error("EADDRINUSE"),
        }
    }

    fn accept(&mut self, fd: i64, call: &SystemCall, world: &mut VirtualWorld) -> CallResult {
        let descriptor = self.at(fd);
        let DescriptorKind::Listener(listener, waiting) = &mut descriptor.kind else {
            return error("EINVAL");
        };
        let Some(id) = waiting.take().or_else(|| world.host.tcp_accept(*listener)) else {
            return blocked(descriptor.is_nonblocking);
        };
        let mut accepted =
            SocketDescriptor::new(DescriptorKind::Connection(id), descriptor.tcp.clone());
        let kinds = call.arguments.get(3).map(flags_of).unwrap_or_default();
        accepted.is_nonblocking = kinds.contains(&"SOCK_NONBLOCK");
        self.add(call, accepted)
    }

    fn connect(
        &mut self,
        fd: i64,
        again: bool,
        world: &mut VirtualWorld,
        settings: &RunSettings,
    ) -> CallResult {
        let now = world.now;
        let descriptor = self.at(fd);
        match descriptor.kind {
            DescriptorKind::Fresh { is_bound } => {
                let config = settings.connection(&descriptor.tcp);
                let mut local = settings.local;
                if !is_bound {
                    local.set_port(0);
                }
                match world.host.tcp_connect(now, local, settings.remote, config, &world.pool) {
                    Ok(id) => descriptor.kind = DescriptorKind::Connection(id),
                    Err(_) => return error("EADDRNOTAVAIL"),
                }
                if descriptor.is_nonblocking {
                    error("EINPROGRESS")
                } else {
                    Ok(CallAnswer::Blocks)
                }
            }
            DescriptorKind::Connection(id) => {
                let (state, failure) = connection_state(world, id);
                match (state, failure) {
                    (TcpState::SynSent | TcpState::SynReceived, _) if again => {
                        Ok(CallAnswer::Blocks)
                    }
                    (TcpState::SynSent | TcpState::SynReceived, _) => error("EALREADY"),
                    (TcpState::Closed, Some(failure)) if !descriptor.is_error_taken => {
                        descriptor.is_error_taken = true;
                        error(errno(failure))
                    }
                    (TcpState::Closed, _) => error("ECONNABORTED"),
                    _ if again => value(0),
                    _ => error("EISCONN"),
                }
            }
            _ => error("EOPNOTSUPP"),
        }
    }

    fn send(&mut self, fd: i64, call: &SystemCall, world: &mut VirtualWorld) -> CallResult {
        let (len, flags) = length(call)?;
        for flag in &flags {
            if !matches!(*flag, "MSG_NOSIGNAL" | "MSG_DONTWAIT" | "MSG_MORE" | "MSG_EOR" | "0") {
                return unsupported(format!("the flag {flag}"));
            }
        }
        let how = match &flags {
            flags if flags.contains(&"MSG_MORE") => WriteEnd::More,
            flags if flags.contains(&"MSG_EOR") => WriteEnd::Record,
            _ => WriteEnd::Push,
        };
        let mut done = self.progress;
        let descriptor = self.at(fd);
        let id = match descriptor.kind {
            DescriptorKind::Connection(id) => id,
            DescriptorKind::Fresh { .. } | DescriptorKind::Listener(..) => return error("EPIPE"),
            DescriptorKind::Poller(_) => return error("EINVAL"),
        };
        if is_null(call) {
            return error("EFAULT");
        }
        let is_nonblocking = descriptor.is_nonblocking || flags.contains(&"MSG_DONTWAIT");
        let bytes = vec![0; len - done];
        match world.host.tcp_send_as(world.now, id, &bytes, how) {
            Ok(sent) => done += sent,
            Err(failure) => {
                let taken = std::mem::replace(&mut descriptor.is_error_taken, true);
                let is_end = matches!(failure, TcpSocketError::Shutdown | TcpSocketError::Closed);
                return error(if taken || is_end { "EPIPE" } else { errno(failure) });
            }
        }
        if done == len || (is_nonblocking && done > 0) {
            return value(i64::try_from(done).unwrap_or(i64::MAX));
        }
        self.progress = done;
        blocked(is_nonblocking)
    }

    fn receive(&mut self, fd: i64, call: &SystemCall, world: &mut VirtualWorld) -> CallResult {
        let (len, flags) = length(call)?;
        for flag in &flags {
            if !matches!(*flag, "MSG_PEEK" | "MSG_DONTWAIT" | "MSG_NOSIGNAL" | "0") {
                return unsupported(format!("the flag {flag}"));
            }
        }
        let descriptor = self.at(fd);
        let id = match descriptor.kind {
            DescriptorKind::Connection(id) => id,
            DescriptorKind::Fresh { .. } | DescriptorKind::Listener(..) => {
                return error("ENOTCONN");
            }
            DescriptorKind::Poller(_) => return error("EINVAL"),
        };
        let readable = usize::try_from(readable(world, id)).unwrap_or(usize::MAX);
        if is_null(call) && readable > 0 {
            return error("EFAULT");
        }
        if flags.contains(&"MSG_PEEK") && readable > 0 {
            return value(i64::try_from(len.min(readable)).unwrap_or(i64::MAX));
        }
        let is_nonblocking = descriptor.is_nonblocking || flags.contains(&"MSG_DONTWAIT");
        let mut bytes = vec![0; len];
        let answer = match world.host.tcp_receive(world.now, id, &mut bytes) {
            Ok(Received::Data(read)) => value(i64::try_from(read).unwrap_or(i64::MAX)),
            Ok(Received::End) => value(0),
            Ok(Received::Empty) if descriptor.is_read_shut => value(0),
            Ok(Received::Empty) => blocked(is_nonblocking),
            Err(TcpSocketError::Closed) if descriptor.is_error_taken => value(0),
            Err(failure) => {
                let taken = std::mem::replace(&mut descriptor.is_error_taken, true);
                if taken { value(0) } else { error(errno(failure)) }
            }
        };
        if call.name == "recvmsg" {
            let reports = descriptor.reports_queue;
            values::compare_control(call, reports.then(|| queue_hint(world, id)))?;
        }
        answer
    }

    fn close(&mut self, fd: i64, world: &mut VirtualWorld) -> CallResult {
        let descriptor = self.open.remove(&fd).expect("perform() has looked it up");
        let now = world.now;
        match descriptor.kind {
            DescriptorKind::Listener(id, waiting) => {
                world.host.tcp_close_listener(now, id);
                if let Some(waiting) = waiting {
                    world.host.tcp_abort(now, waiting);
                }
            }
            DescriptorKind::Connection(id) if descriptor.aborts => world.host.tcp_abort(now, id),
            DescriptorKind::Connection(id) => world.host.tcp_close(now, id),
            DescriptorKind::Fresh { .. } | DescriptorKind::Poller(_) => {}
        }
        for descriptor in self.open.values_mut() {
            if let DescriptorKind::Poller(poller) = &mut descriptor.kind {
                poller.remove(fd);
            }
        }
        value(0)
    }

    fn shutdown(&mut self, fd: i64, call: &SystemCall, world: &mut VirtualWorld) -> CallResult {
        let how = call.arguments.get(1).map(flags_of).unwrap_or_default();
        let descriptor = self.at(fd);
        let DescriptorKind::Connection(id) = descriptor.kind else { return error("ENOTCONN") };
        let (reads, writes) = match how[..] {
            ["SHUT_RD"] => (true, false),
            ["SHUT_WR"] => (false, true),
            ["SHUT_RDWR"] => (true, true),
            _ => {
                return unsupported("another way to shut down than SHUT_RD, SHUT_WR and SHUT_RDWR");
            }
        };
        let (state, _) = connection_state(world, id);
        if matches!(state, TcpState::Closed | TcpState::TimeWait) {
            return error("ENOTCONN");
        }
        descriptor.is_read_shut |= reads;
        if writes && world.host.tcp_shutdown(world.now, id).is_err() {
            return error("ENOTCONN");
        }
        value(0)
    }

    fn fcntl(&mut self, fd: i64, call: &SystemCall) -> CallResult {
        let command = call.arguments.get(1).map(flags_of).unwrap_or_default();
        let descriptor = self.at(fd);
        match command[..] {
            // O_RDWR, and what O_NONBLOCK is on Linux or on FreeBSD.
            ["F_GETFL"] if !descriptor.is_nonblocking => value(2),
            ["F_GETFL"] => match call.result {
                CallValue::Integer(6) => value(6),
                _ => value(2 | 0o4000),
            },
            ["F_SETFL"] => {
                let flags = call.arguments.get(2).map(flags_of).unwrap_or_default();
                descriptor.is_nonblocking = flags.contains(&"O_NONBLOCK");
                value(0)
            }
            _ => unsupported(format!("fcntl {command:?}")),
        }
    }

    fn ioctl(&mut self, fd: i64, call: &SystemCall, world: &mut VirtualWorld) -> CallResult {
        let command = call.arguments.get(1).map(flags_of).unwrap_or_default().concat();
        let Some(queued) = self.queued(fd, &command, world)? else { return error("EINVAL") };
        values::compare_output(call, 2, queued)?;
        value(0)
    }

    /// Bytes in the queue of a descriptor that a command of `ioctl` asks for; `None`: it has none.
    ///
    /// # Errors
    /// [`CallFault::Unsupported`].
    pub fn queued(
        &mut self,
        fd: i64,
        command: &str,
        world: &VirtualWorld,
    ) -> Result<Option<i64>, CallFault> {
        let DescriptorKind::Connection(id) = self.at(fd).kind else { return Ok(None) };
        Ok(Some(match command {
            "SIOCINQ" | "FIONREAD" => i64::try_from(readable(world, id)).unwrap_or(i64::MAX),
            "SIOCOUTQ" | "TIOCOUTQ" => {
                let info = world.host.tcp_info(id);
                info.map_or(0, |info| i64::try_from(info.outstanding + info.unsent).unwrap_or(0))
            }
            _ => return unsupported(format!("ioctl {command}")),
        }))
    }

    /// The connection of a descriptor, if it has one.
    pub fn connection(&self, fd: i64) -> Option<TcpId> {
        match self.open.get(&fd)?.kind {
            DescriptorKind::Connection(id) => Some(id),
            _ => None,
        }
    }

    /// Whether there is such a descriptor.
    pub fn is_open(&self, fd: i64) -> bool {
        self.open.contains_key(&fd)
    }

    /// The figures of the connection that the script looks at: the one with the highest number.
    pub fn info(&self, world: &VirtualWorld) -> Option<TcpInfo> {
        let mut connections =
            self.open.values().rev().filter_map(|descriptor| match descriptor.kind {
                DescriptorKind::Connection(id) => Some(id),
                _ => None,
            });
        connections.find_map(|id| world.host.tcp_info(id))
    }
}

fn blocked(is_nonblocking: bool) -> CallResult {
    if is_nonblocking { error("EAGAIN") } else { Ok(CallAnswer::Blocks) }
}

fn connection_state(world: &VirtualWorld, id: TcpId) -> (TcpState, Option<TcpSocketError>) {
    let state = world.host.tcp_state(id).unwrap_or(TcpState::Closed);
    (state, world.host.tcp_error(id))
}

/// Bytes that can be read at once.
fn readable(world: &VirtualWorld, id: TcpId) -> u64 {
    world.host.tcp_info(id).map_or(0, |info| info.readable)
}

/// What TCP_INQ reports: what can be read, and 1 where only the end is left.
fn queue_hint(world: &VirtualWorld, id: TcpId) -> i64 {
    match readable(world, id) {
        0 if is_finished(world, id) => 1,
        bytes => i64::try_from(bytes).unwrap_or(i64::MAX),
    }
}

/// Whether the peer has sent everything, and all of it arrived.
fn is_finished(world: &VirtualWorld, id: TcpId) -> bool {
    world.host.tcp_info(id).is_some_and(|info| info.is_finished)
}

/// A time that an option sets.
const fn milliseconds(value: i64) -> Span {
    Span::from_ms(value.unsigned_abs())
}
