//! The tracepoints that are recorded, and how their records are decoded.
//!
//! Numbers and offsets differ from kernel to kernel, so both are read from tracefs.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use plumb_sys::{namespace, perf::call};

/// A point in the kernel at which a message can be seen passing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tracepoint {
    /// `raw_syscalls:sys_enter`.
    CallEnter,
    /// `raw_syscalls:sys_exit`.
    CallExit,
    /// `sched:sched_waking`: somebody begins to wake a task.
    Waking,
    /// `sched:sched_wakeup`: the woken task is runnable, on its own CPU.
    Woken,
    /// `sched:sched_switch`: a CPU turns to another task.
    Switch,
    /// `net:net_dev_start_xmit`: a frame goes to the driver.
    DeviceTransmit,
    /// `net:netif_receive_skb`: the receive path of the protocols begins.
    StackReceive,
    /// `sock:sk_data_ready`: a message is in the socket's queue.
    DataReady,
    /// `skb:skb_copy_datagram_iovec`: a message is about to be copied to the receiver.
    Copy,
}

// By their paths below `events/`, in the order in which a message usually passes.
names!(list Tracepoint {
    CallEnter = "raw_syscalls/sys_enter",
    CallExit = "raw_syscalls/sys_exit",
    Waking = "sched/sched_waking",
    Woken = "sched/sched_wakeup",
    Switch = "sched/sched_switch",
    DeviceTransmit = "net/net_dev_start_xmit",
    StackReceive = "net/netif_receive_skb",
    DataReady = "sock/sk_data_ready",
    Copy = "skb/skb_copy_datagram_iovec",
});

impl Tracepoint {
    /// Whether a path cannot be followed at all without it.
    pub(super) const fn is_required(self) -> bool {
        matches!(self, Self::CallEnter | Self::CallExit | Self::Waking | Self::Switch)
    }

    /// The fields besides `common_pid` that are read, in the order [`TracepointLayout::decode`] wants them.
    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::CallEnter | Self::CallExit => &["id"],
            Self::Waking | Self::Woken => &["pid"],
            Self::Switch => &["prev_pid", "next_pid"],
            _ => &[],
        }
    }

    /// A filter that keeps what concerns these threads; none where the context may be anybody's,
    /// as in a software interrupt.
    pub(super) fn filter(self, threads: &[u32]) -> Option<String> {
        let fields: &[&str] = match self {
            Self::CallEnter | Self::CallExit | Self::Copy => &["common_pid"],
            Self::Waking | Self::Woken => &["pid"],
            Self::Switch => &["prev_pid", "next_pid"],
            _ => return None,
        };
        let terms: Vec<String> = threads
            .iter()
            .flat_map(|thread| fields.iter().map(move |field| format!("{field} == {thread}")))
            .collect();
        Some(terms.join(" || "))
    }
}

/// A choice of tracepoints: each costs every round trip that passes it, so only those that a
/// mechanism's path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TracepointSet {
    bits: u32,
}

impl TracepointSet {
    /// For pipes and whatever else has no socket.
    pub(crate) const fn pipe() -> Self {
        Self { bits: 0 }
            .with(Tracepoint::CallEnter)
            .with(Tracepoint::CallExit)
            .with(Tracepoint::Waking)
            .with(Tracepoint::Switch)
    }

    /// For Unix sockets.
    pub(crate) const fn unix() -> Self {
        Self::pipe().with(Tracepoint::DataReady).with(Tracepoint::Copy)
    }

    /// For TCP and UDP over loopback, veth or a TAP device.
    pub(crate) const fn network() -> Self {
        Self::unix().with(Tracepoint::DeviceTransmit).with(Tracepoint::StackReceive)
    }

    /// With one more: `Woken` where the processes are on different CPUs.
    #[must_use]
    pub(crate) const fn with(self, tracepoint: Tracepoint) -> Self {
        Self { bits: self.bits | 1 << tracepoint as u32 }
    }

    /// Whether it has this one.
    pub(crate) const fn contains(self, tracepoint: Tracepoint) -> bool {
        self.bits >> tracepoint as u32 & 1 == 1
    }

    /// Its tracepoints.
    pub(crate) fn iter(self) -> impl Iterator<Item = Tracepoint> {
        Tracepoint::ALL.into_iter().filter(move |&tracepoint| self.contains(tracepoint))
    }
}

/// Why nothing can be recorded, with what helps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceUnavailable {
    /// No tracefs, and none may be mounted.
    #[error("the kernel's tracepoints cannot be found ({0}); {fix}", fix = MOUNT)]
    NoTracefs(io::Error),
    /// A tracefs is there, and not for this user.
    #[error("this user may not read the kernel's list of tracepoints ({0}); {fix}", fix = READ)]
    Unreadable(io::Error),
    /// perf_event_open(2) is refused.
    #[error("the kernel refuses to record tracepoints ({0}); {fix}", fix = RECORD)]
    Refused(io::Error),
    /// This kernel has no such tracepoint, or describes it in a way unknown here.
    #[error("this kernel does not offer the tracepoint {what} ({source}); {fix}", fix = NOTHING)]
    Missing {
        /// Its path.
        what: &'static str,
        /// What reading it said.
        source: io::Error,
    },
    /// Tracepoints name processes by other numbers than this process sees.
    #[error(
        "tracepoints number processes as the host does, and this is another process namespace; {fix}",
        fix = OUTSIDE
    )]
    OtherNamespace,
    /// No ring could be mapped.
    #[error("no memory for the records ({0}); {fix}", fix = LOCK)]
    NoRing(io::Error),
    /// Something else about a tracepoint failed.
    #[error("cannot listen to {what}: {source}")]
    Failed {
        /// Its path.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

const MOUNT: &str = "as root: mount -t tracefs tracefs /sys/kernel/tracing, and run plumb as root";
/// Its files are its group's to read, not everybody's.
const READ: &str = "run plumb as root, or: sudo mount -o remount,mode=750,gid=$(id -g) \
    /sys/kernel/tracing && sudo sysctl -w kernel.perf_event_paranoid=-1";
const RECORD: &str =
    "run plumb as root or with CAP_PERFMON, or: sudo sysctl -w kernel.perf_event_paranoid=-1";
const NOTHING: &str = "no setting helps";
const OUTSIDE: &str = "run plumb on the host, or the container with --pid=host";
const LOCK: &str = "raise it: sudo sysctl -w kernel.perf_event_mlock_kb=2048";

/// The number of the tracepoint of task switches, which every kernel with tracing has.
const SWITCH_ID: &str = "sched/sched_switch/id";

/// Where tracefs is found; holds the mount when it is one of our own.
#[derive(Debug)]
pub(super) struct Tracefs {
    events: PathBuf,
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// The mounted one, or else one attached nowhere that goes away with the value.
    pub(super) fn find() -> Result<Self, TraceUnavailable> {
        let mut refused = None;
        for root in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            let events = Path::new(root).join("events");
            match fs::read_to_string(events.join(SWITCH_ID)) {
                Ok(_) => return Ok(Self { events, _mount: None }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Self::attach().map_err(|error| match refused {
            Some(refused) if refused.kind() == io::ErrorKind::PermissionDenied => {
                TraceUnavailable::Unreadable(refused)
            }
            refused => TraceUnavailable::NoTracefs(refused.unwrap_or(error)),
        })
    }

    fn attach() -> io::Result<Self> {
        let mount = namespace::detached_mount(c"tracefs")?;
        let events = PathBuf::from(format!("/proc/self/fd/{}/events", mount.as_raw_fd()));
        fs::read_to_string(events.join(SWITCH_ID))?;
        Ok(Self { events, _mount: Some(mount) })
    }

    /// What this kernel says about a tracepoint.
    pub(super) fn layout(&self, tracepoint: Tracepoint) -> io::Result<TracepointLayout> {
        let directory = self.events.join(tracepoint.name());
        let id = fs::read_to_string(directory.join("id"))?;
        let format = fs::read_to_string(directory.join("format"))?;
        TracepointLayout::parse(tracepoint, id.trim(), &format)
            .ok_or_else(|| io::Error::other(format!("{} has another format", tracepoint.name())))
    }
}

/// What a system call does for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyscallKind {
    /// It can send one.
    Send,
    /// It can receive one.
    Receive,
    /// Anything else: waiting in poll or a futex, say.
    Other,
}

impl SyscallKind {
    /// The kind of the system call with this number.
    pub(crate) fn of(number: i64) -> Self {
        if call::SENDS.contains(&number) {
            Self::Send
        } else if call::RECEIVES.contains(&number) {
            Self::Receive
        } else {
            Self::Other
        }
    }
}

/// What happened at a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceEventKind {
    /// A thread entered the kernel.
    Enter(SyscallKind),
    /// It is about to leave it.
    Exit(SyscallKind),
    /// This thread is being woken.
    Waking(u32),
    /// This thread is runnable.
    Woken(u32),
    /// The CPU turns from one thread to another; 0 is the idle task.
    Switch {
        /// The thread that stops.
        from: u32,
        /// The thread that goes on.
        to: u32,
    },
    /// A frame went to the driver.
    DeviceTransmit,
    /// The protocols' receive path began.
    StackReceive,
    /// A message is in the socket's queue.
    DataReady,
    /// A message is about to be copied to the receiver.
    Copy,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceEvent {
    /// In ticks of the worker's stopwatch.
    pub(crate) at: u64,
    /// The CPU it happened on.
    pub(crate) cpu: u32,
    /// The thread that was running there.
    pub(crate) thread: u32,
    /// What happened.
    pub(crate) kind: TraceEventKind,
}

/// A field's place in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RecordField {
    offset: usize,
    size: usize,
}

impl RecordField {
    /// The field called `name` in a tracepoint's `format` file.
    fn find(format: &str, name: &str) -> Option<Self> {
        let line = format.lines().find(|line| {
            let declaration = line.trim().strip_prefix("field:").and_then(|l| l.split(';').next());
            declaration.and_then(|d| d.split_whitespace().last()) == Some(name)
        })?;
        let number = |key: &str| {
            line.split(';').find_map(|part| part.trim().strip_prefix(key)?.parse::<usize>().ok())
        };
        let field = Self { offset: number("offset:")?, size: number("size:")? };
        matches!(field.size, 4 | 8).then_some(field)
    }

    /// Its value, as the signed number that all fields read here are.
    fn read(self, record: &[u8]) -> Option<i64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        match self.size {
            4 => Some(i64::from(i32::from_ne_bytes(bytes.try_into().ok()?))),
            _ => Some(i64::from_ne_bytes(bytes.try_into().ok()?)),
        }
    }
}

/// A tracepoint's number and the places of its fields, on this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TracepointLayout {
    pub(super) tracepoint: Tracepoint,
    pub(super) id: u64,
    pid: RecordField,
    fields: Vec<RecordField>,
}

impl TracepointLayout {
    fn parse(tracepoint: Tracepoint, id: &str, format: &str) -> Option<Self> {
        let fields = tracepoint.fields().iter().map(|name| RecordField::find(format, name));
        Some(Self {
            tracepoint,
            id: id.parse().ok()?,
            pid: RecordField::find(format, "common_pid")?,
            fields: fields.collect::<Option<_>>()?,
        })
    }

    /// The number that every record begins with.
    pub(super) fn id_of(record: &[u8]) -> Option<u64> {
        // `common_type` has been the first two bytes of every record since there are tracepoints.
        record.get(..2)?.try_into().ok().map(u16::from_ne_bytes).map(u64::from)
    }

    /// What happened, and the thread in whose context it did.
    pub(super) fn decode(&self, record: &[u8]) -> Option<(u32, TraceEventKind)> {
        let thread = |field: &RecordField| u32::try_from(field.read(record)?).ok();
        let field = |index: usize| self.fields.get(index).and_then(thread);
        let call = || self.fields.first().and_then(|id| id.read(record)).map(SyscallKind::of);
        let kind = match self.tracepoint {
            Tracepoint::CallEnter => TraceEventKind::Enter(call()?),
            Tracepoint::CallExit => TraceEventKind::Exit(call()?),
            Tracepoint::Waking => TraceEventKind::Waking(field(0)?),
            Tracepoint::Woken => TraceEventKind::Woken(field(0)?),
            Tracepoint::Switch => TraceEventKind::Switch { from: field(0)?, to: field(1)? },
            Tracepoint::DeviceTransmit => TraceEventKind::DeviceTransmit,
            Tracepoint::StackReceive => TraceEventKind::StackReceive,
            Tracepoint::DataReady => TraceEventKind::DataReady,
            Tracepoint::Copy => TraceEventKind::Copy,
        };
        Some((thread(&self.pid)?, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 prints it.
    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
        \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"prev_pid=%d\", REC->prev_pid\n";

    #[test]
    fn fields_are_found_where_the_format_says() {
        let layout = TracepointLayout::parse(Tracepoint::Switch, "372", SWITCH).unwrap();
        let mut record = vec![0; 64];
        record[..2].copy_from_slice(&372_u16.to_ne_bytes());
        record[4..8].copy_from_slice(&41_i32.to_ne_bytes());
        record[24..28].copy_from_slice(&42_i32.to_ne_bytes());
        record[56..60].copy_from_slice(&43_i32.to_ne_bytes());
        assert_eq!(TracepointLayout::id_of(&record), Some(372));
        assert_eq!(layout.decode(&record), Some((41, TraceEventKind::Switch { from: 42, to: 43 })));
        for len in 0..60 {
            assert_eq!(layout.decode(&record[..len]), None, "{len}");
        }
        // Another kernel may put them elsewhere.
        let moved = SWITCH.replace("next_pid;\toffset:56", "next_pid;\toffset:48");
        let layout = TracepointLayout::parse(Tracepoint::Switch, "372", &moved).unwrap();
        record[48..52].copy_from_slice(&44_i32.to_ne_bytes());
        assert_eq!(layout.decode(&record), Some((41, TraceEventKind::Switch { from: 42, to: 44 })));
    }

    #[test]
    fn a_format_without_a_field_that_is_needed_is_refused() {
        assert_eq!(TracepointLayout::parse(Tracepoint::Switch, "x", SWITCH), None);
        let without = SWITCH.replace("next_pid;", "next_tid;");
        assert_eq!(TracepointLayout::parse(Tracepoint::Switch, "372", &without), None);
        assert_eq!(TracepointLayout::parse(Tracepoint::Waking, "372", SWITCH), None);
        // A name that merely ends alike is another field.
        let alike = SWITCH.replace("int common_pid;", "int uncommon_pid;");
        assert_eq!(TracepointLayout::parse(Tracepoint::Switch, "372", &alike), None);
    }

    #[test]
    fn filters_name_every_thread_and_leave_interrupts_alone() {
        let filter = Tracepoint::Switch.filter(&[7, 8]).unwrap();
        assert_eq!(filter, "prev_pid == 7 || next_pid == 7 || prev_pid == 8 || next_pid == 8");
        assert_eq!(Tracepoint::StackReceive.filter(&[7, 8]), None);
    }
}
