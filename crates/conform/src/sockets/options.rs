//! Socket options.

use plumb_stack::tcp::TcpState;
use plumb_stack::tcp::config::{BufferLimits, KeepAlive, TcpConfig};
use plumb_stack::tcp::congestion::CongestionChoice;

use super::values::{compare_output, field, flags_of, number};
use super::{
    CallFault, CallResult, DescriptorKind, ScriptSockets, SocketDescriptor, connection_state,
    errno, error, milliseconds, unsupported, value,
};
use crate::script::{CallValue, SystemCall};
use crate::settings::{RunSettings, ScriptSystem};
use crate::world::VirtualWorld;

impl ScriptSockets {
    pub(super) fn setsockopt(
        &mut self,
        fd: i64,
        call: &SystemCall,
        world: &mut VirtualWorld,
        settings: &RunSettings,
    ) -> CallResult {
        let option = name(call);
        let descriptor = self.at(fd);
        match option {
            // Without effect: one script has one stack.
            "SO_REUSEADDR" | "SO_REUSEPORT" | "TCP_QUICKACK" => return value(0),
            "SO_LINGER" => {
                let linger = call.arguments.get(3);
                let is = |name, wanted: fn(i64) -> bool| matches!(field(linger, name), Some(CallValue::Integer(value)) if wanted(*value));
                descriptor.aborts = is("onoff", |on| on != 0) && is("linger", |time| time == 0);
                return value(0);
            }
            "TCP_CONGESTION" => {
                let Some(CallValue::Text(text)) = call.arguments.get(3) else {
                    return unsupported("TCP_CONGESTION without a name");
                };
                let Ok(choice) = text.parse::<CongestionChoice>() else { return error("ENOENT") };
                descriptor.tcp.congestion = choice;
                if let DescriptorKind::Connection(id) = descriptor.kind {
                    let _ = world.host.tcp_set_congestion(world.now, id, choice);
                }
                return value(0);
            }
            _ => {}
        }
        let number = number(call, 3)?;
        set_number(descriptor, option, number, settings)?;
        if let DescriptorKind::Connection(id) = descriptor.kind {
            let tcp = &descriptor.tcp;
            let change = |config: &mut TcpConfig| {
                config.nagle = tcp.nagle;
                config.keep_alive = tcp.keep_alive;
                config.user_timeout = tcp.user_timeout;
                config.marks = tcp.marks;
            };
            // Of a connection that is gone nothing needs to be set.
            let _ = world.host.tcp_reconfigure(world.now, id, change);
            let _ = match option {
                "TCP_NODELAY" => world.host.tcp_set_nodelay(world.now, id, number != 0),
                "TCP_CORK" => world.host.tcp_set_cork(world.now, id, number != 0),
                _ => Ok(()),
            };
        } else {
            // A socket that neither listens nor connects is unknown to the stack: what answers in its place says what it would.
            world.host.tcp_set_reset_marks(descriptor.tcp.marks);
        }
        value(0)
    }

    pub(super) fn getsockopt(
        &mut self,
        fd: i64,
        call: &SystemCall,
        world: &mut VirtualWorld,
        settings: &RunSettings,
    ) -> CallResult {
        let option = name(call);
        if option == "SO_ERROR" {
            let name = self.take_error(fd, world);
            return compare_error(call, name);
        }
        let found = self.option_value(fd, option, world, settings)?;
        compare_output(call, 3, found)?;
        value(0)
    }

    /// The name of the error of a descriptor that is open, which is reported once.
    pub fn take_error(&mut self, fd: i64, world: &VirtualWorld) -> Option<&'static str> {
        let descriptor = self.at(fd);
        let DescriptorKind::Connection(id) = descriptor.kind else { return None };
        let failure = connection_state(world, id).1;
        let name = failure.filter(|_| !descriptor.is_error_taken).map(errno);
        descriptor.is_error_taken |= name.is_some();
        name
    }

    /// The value of an option of a descriptor that is open.
    ///
    /// # Errors
    /// [`CallFault::Unsupported`].
    pub fn option_value(
        &mut self,
        fd: i64,
        option: &str,
        world: &VirtualWorld,
        settings: &RunSettings,
    ) -> Result<i64, CallFault> {
        let descriptor = self.at(fd);
        let info = match descriptor.kind {
            DescriptorKind::Connection(id) => world.host.tcp_info(id),
            _ => None,
        };
        Ok(match option {
            "SO_RCVBUF" => {
                let open = info.filter(|info| info.state != TcpState::SynSent);
                let mss = open.map_or(0, |info| info.mss);
                let is_open = open.is_some() && settings.system == ScriptSystem::FreeBsd;
                let bytes = descriptor.tcp.receive_buffer.initial;
                let own = RunSettings { tcp: descriptor.tcp.clone(), ..settings.clone() };
                i64::from(if is_open { own.receive_buffer(true, mss) } else { bytes })
            }
            "SO_SNDBUF" => descriptor.tcp.send_buffer.initial.into(),
            "TCP_MAXSEG" => info.map_or(536, |info| info.mss.into()),
            "TCP_NODELAY" => i64::from(!descriptor.tcp.nagle),
            "SO_KEEPALIVE" => i64::from(descriptor.tcp.keep_alive.is_some()),
            "TCP_NOTSENT_LOWAT" => descriptor.unsent_mark.unwrap_or(u32::MAX.into()).cast_signed(),
            "TCP_INQ" => descriptor.reports_queue.into(),
            "TCP_CORK" => descriptor.is_corked.into(),
            "TCP_USER_TIMEOUT" => {
                let timeout = descriptor.tcp.user_timeout.unwrap_or_default();
                i64::try_from(timeout.as_ns() / 1_000_000).unwrap_or(i64::MAX)
            }
            _ => return unsupported(format!("the socket option {option}")),
        })
    }
}

fn name(call: &SystemCall) -> &str {
    call.arguments.get(2).map(flags_of).unwrap_or_default().first().copied().unwrap_or("a number")
}

fn set_number(
    descriptor: &mut SocketDescriptor,
    option: &str,
    number: i64,
    settings: &RunSettings,
) -> Result<(), CallFault> {
    let tcp = &mut descriptor.tcp;
    let bytes = u32::try_from(number).unwrap_or(0);
    let is_linux = settings.system == ScriptSystem::Linux;
    match option {
        "TCP_NODELAY" => tcp.nagle = number == 0,
        // Linux takes as much again for its own administration.
        "SO_SNDBUF" if is_linux => tcp.send_buffer = BufferLimits::fixed(bytes.saturating_mul(2)),
        "SO_RCVBUF" if is_linux => {
            tcp.receive_buffer = BufferLimits::fixed(bytes.saturating_mul(2));
        }
        "SO_SNDBUF" => tcp.send_buffer = BufferLimits::fixed(bytes),
        "SO_RCVBUF" => tcp.receive_buffer = BufferLimits::fixed(bytes),
        "SO_KEEPALIVE" => {
            tcp.keep_alive = (number != 0).then(|| tcp.keep_alive.unwrap_or_default());
        }
        "TCP_KEEPIDLE" => keep_alive(descriptor).idle = milliseconds(number * 1_000),
        "TCP_KEEPINTVL" => keep_alive(descriptor).interval = milliseconds(number * 1_000),
        "TCP_KEEPCNT" => keep_alive(descriptor).probes = bytes,
        "TCP_USER_TIMEOUT" => tcp.user_timeout = (number != 0).then(|| milliseconds(number)),
        "TCP_MAXSEG" => tcp.mss_max = u16::try_from(number).ok().filter(|mss| *mss > 0),
        "TCP_SYNCNT" => tcp.personality.syn_retries = u8::try_from(number).unwrap_or(u8::MAX),
        // Its low two bits are those of ECN, which TCP sets.
        "IP_TOS" | "IPV6_TCLASS" => tcp.marks.dscp = octet(number) >> 2,
        "IP_TTL" | "IPV6_UNICAST_HOPS" => tcp.marks.hop_limit = octet(number),
        "TCP_NOTSENT_LOWAT" => descriptor.unsent_mark = Some(number.unsigned_abs()),
        "TCP_INQ" => descriptor.reports_queue = number != 0,
        "TCP_CORK" => descriptor.is_corked = number != 0,
        _ => return unsupported(format!("the socket option {option}")),
    }
    Ok(())
}

fn octet(number: i64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

fn keep_alive(descriptor: &mut SocketDescriptor) -> &mut KeepAlive {
    descriptor.tcp.keep_alive.get_or_insert_default()
}

/// Compares the name of an error, if there is one, with `[ECONNRESET]` or `[0]`.
fn compare_error(call: &SystemCall, found: Option<&str>) -> CallResult {
    let expected = match call.arguments.get(3) {
        Some(CallValue::List(values)) => values.first().map(flags_of).unwrap_or_default(),
        _ => return value(0),
    };
    let (found, expected) = (found.unwrap_or("0"), expected.concat());
    if found == expected {
        return value(0);
    }
    Err(CallFault::Differs(format!("SO_ERROR gave {found} instead of {expected}")))
}
