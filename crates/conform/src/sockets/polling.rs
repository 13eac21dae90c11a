//! `poll` and `epoll`.

use std::collections::BTreeMap;

use plumb_stack::tcp::TcpState;

use super::values::{field, flags_of, number};
use super::{
    CallAnswer, CallFault, CallResult, DescriptorKind, ScriptSockets, SocketDescriptor,
    connection_state, error, is_finished, readable, unsupported, value,
};
use crate::script::{CallValue, SystemCall};
use crate::world::VirtualWorld;

/// Names of events, without the prefix that `poll` and `epoll` have.
const EVENTS: [&str; 5] = ["IN", "OUT", "ERR", "HUP", "RDHUP"];

/// What an epoll descriptor watches.
#[derive(Debug, Default)]
pub struct EventPoller {
    watched: BTreeMap<i64, PolledEvents>,
}

#[derive(Debug)]
struct PolledEvents {
    wanted: Vec<String>,
    is_edge: bool,
    /// What the last report was about; `None`: nothing was reported, or something came since.
    reported: Option<(Vec<&'static str>, u64)>,
}

impl EventPoller {
    pub fn remove(&mut self, fd: i64) {
        self.watched.remove(&fd);
    }
}

/// Events without their prefix.
fn plain(value: Option<&CallValue>) -> Vec<String> {
    let flags = value.map(flags_of).unwrap_or_default();
    let strip = |flag: &&str| {
        let rest = flag.strip_prefix("EPOLL").or(flag.strip_prefix("POLL"));
        rest.map(str::to_owned)
    };
    flags.iter().filter_map(strip).collect()
}

impl SocketDescriptor {
    /// Events that hold, and how many bytes have arrived.
    fn events(&mut self, world: &mut VirtualWorld) -> (Vec<&'static str>, u64) {
        let id = match &mut self.kind {
            DescriptorKind::Listener(id, waiting) => {
                *waiting = waiting.take().or_else(|| world.host.tcp_accept(*id));
                return (if waiting.is_some() { vec!["IN"] } else { Vec::new() }, 0);
            }
            DescriptorKind::Connection(id) => *id,
            DescriptorKind::Fresh { .. } => return (vec!["OUT", "HUP"], 0),
            DescriptorKind::Poller(_) => return (Vec::new(), 0),
        };
        let (state, failure) = connection_state(world, id);
        let has_failed = failure.is_some() && !self.is_error_taken;
        let is_over = state == TcpState::Closed;
        let has_end = is_finished(world, id) || self.is_read_shut || is_over;
        let info = world.host.tcp_info(id);
        let has_room = |mark: u64| info.is_some_and(|info| info.unsent < mark);
        let is_writable = world.host.tcp_is_writable(id) && self.unsent_mark.is_none_or(has_room);
        let sends = matches!(state, TcpState::SynSent | TcpState::SynReceived)
            || matches!(state, TcpState::Established | TcpState::CloseWait);
        let holds = [
            readable(world, id) > 0 || has_end || has_failed,
            is_writable || is_over,
            has_failed,
            is_over || (has_end && !sends),
            has_end,
        ];
        let events = EVENTS.into_iter().zip(holds).filter(|(_, holds)| *holds);
        let arrived = info.map_or(0, |info| info.received.bytes);
        (events.map(|(event, _)| event).collect(), arrived)
    }
}

/// Those of the events that are asked for, or are always reported.
fn asked<'a>(events: &[&'a str], wanted: &[String]) -> Vec<&'a str> {
    let is_asked = |event: &&&str| {
        matches!(**event, "ERR" | "HUP") || wanted.iter().any(|name| name == **event)
    };
    events.iter().filter(is_asked).copied().collect()
}

fn same(found: &[&str], expected: &[String]) -> Result<(), CallFault> {
    if found.len() == expected.len()
        && found.iter().all(|event| expected.iter().any(|name| name == event))
    {
        return Ok(());
    }
    Err(CallFault::Differs(format!("the events are {found:?} instead of {expected:?}")))
}

impl ScriptSockets {
    /// Those of the wanted events of a descriptor that hold: `IN`, `OUT`, `ERR`, `HUP`, `RDHUP`.
    pub fn ready(
        &mut self,
        fd: i64,
        wanted: &[String],
        world: &mut VirtualWorld,
    ) -> Vec<&'static str> {
        let events = self.open.get_mut(&fd).map(|descriptor| descriptor.events(world).0);
        asked(&events.unwrap_or_default(), wanted)
    }

    pub(super) fn poll(&mut self, call: &SystemCall, world: &mut VirtualWorld) -> CallResult {
        let Some(CallValue::List(polled)) = call.arguments.first() else {
            return unsupported("poll without a list");
        };
        let mut ready = Vec::new();
        for entry in polled {
            let Some(CallValue::Integer(fd)) = field(Some(entry), "fd") else {
                return unsupported("poll of no descriptor");
            };
            let wanted = plain(field(Some(entry), "events"));
            ready.push((entry, self.ready(*fd, &wanted, world)));
        }
        let count = ready.iter().filter(|(_, events)| !events.is_empty()).count();
        if count == 0 && number(call, 2)? != 0 {
            // The time out of a call that nothing ends is that at which it is expected to return.
            return Ok(CallAnswer::Blocks);
        }
        for (entry, events) in &ready {
            same(events, &plain(field(Some(entry), "revents")))?;
        }
        value(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(super) fn epoll_ctl(&mut self, fd: i64, call: &SystemCall) -> CallResult {
        let operation = call.arguments.get(1).map(flags_of).unwrap_or_default();
        let target = number(call, 2)?;
        let wanted = plain(field(call.arguments.get(3), "events"));
        let DescriptorKind::Poller(poller) = &mut self.at(fd).kind else { return error("EINVAL") };
        if wanted.iter().any(|flag| matches!(flag.as_str(), "ONESHOT" | "EXCLUSIVE")) {
            return unsupported("EPOLLONESHOT and EPOLLEXCLUSIVE");
        }
        match operation[..] {
            ["EPOLL_CTL_DEL"] => drop(poller.watched.remove(&target)),
            ["EPOLL_CTL_ADD" | "EPOLL_CTL_MOD"] => {
                let is_edge = wanted.iter().any(|flag| flag == "ET");
                poller.watched.insert(target, PolledEvents { wanted, is_edge, reported: None });
            }
            _ => return unsupported("another operation of epoll_ctl"),
        }
        value(0)
    }

    pub(super) fn epoll_wait(
        &mut self,
        fd: i64,
        call: &SystemCall,
        world: &mut VirtualWorld,
    ) -> CallResult {
        let states: BTreeMap<i64, (Vec<&'static str>, u64)> =
            self.open.iter_mut().map(|(fd, descriptor)| (*fd, descriptor.events(world))).collect();
        let DescriptorKind::Poller(poller) = &mut self.at(fd).kind else { return error("EINVAL") };
        for (target, watch) in &mut poller.watched {
            let Some((events, arrived)) = states.get(target) else { continue };
            let found = asked(events, &watch.wanted);
            let state = (events.clone(), *arrived);
            let is_new = !watch.is_edge
                || watch.reported.as_ref().is_none_or(|(old, bytes)| {
                    // An edge is something that arrives, or an event that did not hold before.
                    *bytes < *arrived || found.iter().any(|event| !old.contains(event))
                });
            watch.reported = Some(state);
            if found.is_empty() || !is_new {
                continue;
            }
            same(&found, &plain(field(call.arguments.get(1), "events")))?;
            return value(1);
        }
        match number(call, 3)? {
            0 => value(0),
            _ => Ok(CallAnswer::Blocks),
        }
    }
}
