//! The tracepoints that are listened to, and where each keeps its fields.
//!
//! Numbers and offsets differ from kernel to kernel, so both are read from tracefs. Left out:
//! switching them on, which is `super::recorder`.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use plumb_sys::perf;

use super::recorder::TraceUnavailable;
use super::timeline::{Call, Kind};

/// A point in the kernel at which a message can be seen passing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tracepoint {
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
    /// `net:net_dev_queue`: a frame reaches a device's queue.
    DeviceQueue,
    /// `net:net_dev_start_xmit`: a frame goes to the driver.
    DeviceTransmit,
    /// `net:netif_rx`: a driver hands a frame to this CPU's backlog.
    DeviceReceive,
    /// `net:netif_receive_skb`: the receive path of the protocols begins.
    StackReceive,
    /// `sock:sk_data_ready`: a message is in the socket's queue.
    DataReady,
    /// `skb:skb_copy_datagram_iovec`: a message is about to be copied to the receiver.
    Copy,
}

impl Tracepoint {
    /// All of them, in the order in which a message usually passes.
    pub const ALL: [Self; 11] = [
        Self::CallEnter,
        Self::CallExit,
        Self::Waking,
        Self::Woken,
        Self::Switch,
        Self::DeviceQueue,
        Self::DeviceTransmit,
        Self::DeviceReceive,
        Self::StackReceive,
        Self::DataReady,
        Self::Copy,
    ];

    /// Its path below `events/`.
    pub const fn path(self) -> &'static str {
        match self {
            Self::CallEnter => "raw_syscalls/sys_enter",
            Self::CallExit => "raw_syscalls/sys_exit",
            Self::Waking => "sched/sched_waking",
            Self::Woken => "sched/sched_wakeup",
            Self::Switch => "sched/sched_switch",
            Self::DeviceQueue => "net/net_dev_queue",
            Self::DeviceTransmit => "net/net_dev_start_xmit",
            Self::DeviceReceive => "net/netif_rx",
            Self::StackReceive => "net/netif_receive_skb",
            Self::DataReady => "sock/sk_data_ready",
            Self::Copy => "skb/skb_copy_datagram_iovec",
        }
    }

    /// Whether a path cannot be followed at all without it.
    pub(super) const fn is_indispensable(self) -> bool {
        matches!(self, Self::CallEnter | Self::CallExit | Self::Waking | Self::Switch)
    }

    /// The fields besides `common_pid` that are read, in the order [`Layout::decode`] wants them.
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
pub struct EventSet {
    bits: u32,
}

impl EventSet {
    /// For pipes and whatever else has no socket.
    pub const fn pipe() -> Self {
        Self { bits: 0 }
            .with(Tracepoint::CallEnter)
            .with(Tracepoint::CallExit)
            .with(Tracepoint::Waking)
            .with(Tracepoint::Switch)
    }

    /// For Unix sockets.
    pub const fn unix() -> Self {
        Self::pipe().with(Tracepoint::DataReady).with(Tracepoint::Copy)
    }

    /// For TCP and UDP over loopback, veth or a TAP device.
    pub const fn network() -> Self {
        Self::unix().with(Tracepoint::DeviceTransmit).with(Tracepoint::StackReceive)
    }

    /// With one more: `Woken` where the processes are on different CPUs, `DeviceQueue` and
    /// `DeviceReceive` to see a device from closer.
    #[must_use]
    pub const fn with(self, tracepoint: Tracepoint) -> Self {
        Self { bits: self.bits | 1 << tracepoint as u32 }
    }

    /// With one less, to see what it costs.
    #[must_use]
    pub const fn without(self, tracepoint: Tracepoint) -> Self {
        Self { bits: self.bits & !(1 << tracepoint as u32) }
    }

    /// Whether it has this one.
    pub const fn contains(self, tracepoint: Tracepoint) -> bool {
        self.bits >> tracepoint as u32 & 1 == 1
    }

    /// Its tracepoints.
    pub fn iter(self) -> impl Iterator<Item = Tracepoint> {
        Tracepoint::ALL.into_iter().filter(move |&tracepoint| self.contains(tracepoint))
    }
}

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
        let mount = perf::detached_tracefs()?;
        let events = PathBuf::from(format!("/proc/self/fd/{}/events", mount.as_raw_fd()));
        fs::read_to_string(events.join(SWITCH_ID))?;
        Ok(Self { events, _mount: Some(mount) })
    }

    /// What this kernel says of a tracepoint.
    pub(super) fn layout(&self, tracepoint: Tracepoint) -> io::Result<Layout> {
        let directory = self.events.join(tracepoint.path());
        let id = fs::read_to_string(directory.join("id"))?;
        let format = fs::read_to_string(directory.join("format"))?;
        Layout::parse(tracepoint, id.trim(), &format)
            .ok_or_else(|| io::Error::other(format!("{} has another format", tracepoint.path())))
    }
}

/// A field's place in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

impl Field {
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
pub(super) struct Layout {
    pub(super) tracepoint: Tracepoint,
    pub(super) id: u64,
    pid: Field,
    fields: Vec<Field>,
}

impl Layout {
    fn parse(tracepoint: Tracepoint, id: &str, format: &str) -> Option<Self> {
        let fields = tracepoint.fields().iter().map(|name| Field::find(format, name));
        Some(Self {
            tracepoint,
            id: id.parse().ok()?,
            pid: Field::find(format, "common_pid")?,
            fields: fields.collect::<Option<_>>()?,
        })
    }

    /// The number that every record begins with.
    pub(super) fn id_of(record: &[u8]) -> Option<u64> {
        // `common_type` has been the first two bytes of every record since there are tracepoints.
        record.get(..2)?.try_into().ok().map(u16::from_ne_bytes).map(u64::from)
    }

    /// What happened, and the thread in whose context it did.
    pub(super) fn decode(&self, record: &[u8]) -> Option<(u32, Kind)> {
        let thread = |field: &Field| u32::try_from(field.read(record)?).ok();
        let field = |index: usize| self.fields.get(index).and_then(thread);
        let call = || self.fields.first().and_then(|id| id.read(record)).map(Call::of);
        let kind = match self.tracepoint {
            Tracepoint::CallEnter => Kind::Enter(call()?),
            Tracepoint::CallExit => Kind::Exit(call()?),
            Tracepoint::Waking => Kind::Waking(field(0)?),
            Tracepoint::Woken => Kind::Woken(field(0)?),
            Tracepoint::Switch => Kind::Switch { from: field(0)?, to: field(1)? },
            Tracepoint::DeviceQueue => Kind::DeviceQueue,
            Tracepoint::DeviceTransmit => Kind::DeviceTransmit,
            Tracepoint::DeviceReceive => Kind::DeviceReceive,
            Tracepoint::StackReceive => Kind::StackReceive,
            Tracepoint::DataReady => Kind::DataReady,
            Tracepoint::Copy => Kind::Copy,
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
        let layout = Layout::parse(Tracepoint::Switch, "372", SWITCH).unwrap();
        let mut record = vec![0; 64];
        record[..2].copy_from_slice(&372_u16.to_ne_bytes());
        record[4..8].copy_from_slice(&41_i32.to_ne_bytes());
        record[24..28].copy_from_slice(&42_i32.to_ne_bytes());
        record[56..60].copy_from_slice(&43_i32.to_ne_bytes());
        assert_eq!(Layout::id_of(&record), Some(372));
        assert_eq!(layout.decode(&record), Some((41, Kind::Switch { from: 42, to: 43 })));
        for len in 0..60 {
            assert_eq!(layout.decode(&record[..len]), None, "{len}");
        }
        // Another kernel may put them elsewhere.
        let moved = SWITCH.replace("next_pid;\toffset:56", "next_pid;\toffset:48");
        let layout = Layout::parse(Tracepoint::Switch, "372", &moved).unwrap();
        record[48..52].copy_from_slice(&44_i32.to_ne_bytes());
        assert_eq!(layout.decode(&record), Some((41, Kind::Switch { from: 42, to: 44 })));
    }

    #[test]
    fn a_format_without_a_field_that_is_needed_is_refused() {
        assert_eq!(Layout::parse(Tracepoint::Switch, "x", SWITCH), None);
        let without = SWITCH.replace("next_pid;", "next_tid;");
        assert_eq!(Layout::parse(Tracepoint::Switch, "372", &without), None);
        assert_eq!(Layout::parse(Tracepoint::Waking, "372", SWITCH), None);
        // A name that merely ends alike is another field.
        let alike = SWITCH.replace("int common_pid;", "int uncommon_pid;");
        assert_eq!(Layout::parse(Tracepoint::Switch, "372", &alike), None);
    }

    #[test]
    fn filters_name_every_thread_and_leave_interrupts_alone() {
        let filter = Tracepoint::Switch.filter(&[7, 8]).unwrap();
        assert_eq!(filter, "prev_pid == 7 || next_pid == 7 || prev_pid == 8 || next_pid == 8");
        assert_eq!(Tracepoint::StackReceive.filter(&[7, 8]), None);
    }

    #[test]
    fn a_set_has_what_was_put_in() {
        let set = EventSet::unix().without(Tracepoint::Copy).with(Tracepoint::Woken);
        assert!(set.contains(Tracepoint::DataReady) && set.contains(Tracepoint::Woken));
        assert!(!set.contains(Tracepoint::Copy) && !set.contains(Tracepoint::StackReceive));
        assert!(set.iter().eq(Tracepoint::ALL.into_iter().filter(|&t| set.contains(t))));
    }
}
