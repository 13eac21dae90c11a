//! How a script is run: addresses and tolerances from its options, the stack's configuration from its commands.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_base::time::Span;
use plumb_stack::tcp::config::{BufferLimits, EcnPolicy, Personality, TcpConfig};

use crate::error::{ScriptError, ScriptPosition};
use crate::script::ScriptOption;

mod commands;

/// Which system a script was written for: what its defaults are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScriptSystem {
    /// Linux.
    #[default]
    Linux,
    /// FreeBSD.
    FreeBsd,
    /// None: the RFCs alone.
    Plain,
}

/// Settings of one run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Whose defaults hold.
    pub system: ScriptSystem,
    /// The stack's end.
    pub local: SocketAddr,
    /// The script's end.
    pub remote: SocketAddr,
    /// MTU of the interface between them.
    pub mtu: u32,
    /// How much earlier or later than it says something may happen.
    pub tolerance: Span,
    /// The same in parts of the time since the event before.
    pub tolerance_ratio: f64,
    /// Duration of a tick of the stack's timestamps, if their values are checked.
    pub timestamp_tick: Option<Span>,
    /// Whether the echo of a timestamp that was never sent is inferred from the first one.
    pub infers_echoes: bool,
    /// Whether an expected segment must not come in pieces.
    pub strict_segments: bool,
    /// Configuration of the connections.
    pub tcp: TcpConfig,
}

impl RunSettings {
    /// packetdrill's defaults, with those of `system`.
    pub fn new(system: ScriptSystem) -> Self {
        let mut tcp = TcpConfig::default();
        match system {
            // Linux makes super-segments of what its pacing rate sends in a millisecond, which is the least at the rates of scripts.
            ScriptSystem::Linux => tcp.super_segment_max = 2,
            ScriptSystem::FreeBsd => {
                tcp.personality = Personality::freebsd();
                // FreeBSD's window scale comes from the largest socket buffer.
                tcp.receive_buffer = BufferLimits { initial: 65_536, max: 2_097_152 };
                tcp.send_buffer = BufferLimits::fixed(32_768);
            }
            ScriptSystem::Plain => tcp.personality = Personality::plain(),
        }
        Self {
            system,
            local: (Ipv4Addr::new(192, 168, 0, 1), PORT).into(),
            remote: (Ipv4Addr::new(192, 0, 2, 1), PORT).into(),
            mtu: 1_500,
            tolerance: Span::from_us(4_000),
            tolerance_ratio: 0.125,
            timestamp_tick: None,
            infers_echoes: false,
            strict_segments: false,
            tcp,
        }
    }

    /// Applies the options of a script.
    ///
    /// # Errors
    /// [`ScriptError`] for an option that is unknown or has a value that it cannot have.
    pub fn apply(&mut self, options: &[ScriptOption]) -> Result<(), ScriptError> {
        // The family first: it sets the default addresses.
        for option in options.iter().filter(|option| option.name == "ip_version") {
            match option.value.as_str() {
                "ipv4" => {}
                "ipv6" => self.use_v6(),
                _ => return unsupported(option.at, "an IP version other than ipv4 and ipv6"),
            }
        }
        for option in options {
            self.apply_one(option)?;
        }
        if self.local.is_ipv4() != self.remote.is_ipv4() {
            return unsupported(options[0].at, "addresses of two families");
        }
        Ok(())
    }

    fn use_v6(&mut self) {
        let local = Ipv6Addr::new(0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1);
        let remote = Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1);
        self.local = (local, PORT).into();
        self.remote = (remote, PORT).into();
    }

    fn apply_one(&mut self, option: &ScriptOption) -> Result<(), ScriptError> {
        let number = || -> Result<u32, ScriptError> {
            let reason = format!("--{} needs a number", option.name);
            let error = ScriptError::Syntax { at: option.at, reason };
            option.value.parse().map_err(|_| error)
        };
        let address = || -> Result<IpAddr, ScriptError> {
            let reason = format!("--{} needs an address", option.name);
            let error = ScriptError::Syntax { at: option.at, reason };
            option.value.trim_matches('"').parse().map_err(|_| error)
        };
        match option.name.as_str() {
            // Without `non_fatal` packetdrill ends at the first packet that differs, as is done here in any case.
            "ip_version" | "define" | "D" | "netmask_ip" | "gateway_ip" | "non_fatal" => {}
            "local_ip" => self.local.set_ip(address()?),
            "remote_ip" => self.remote.set_ip(address()?),
            "bind_port" => self.local.set_port(port(number()?)),
            "connect_port" => self.remote.set_port(port(number()?)),
            "mtu" => self.mtu = number()?,
            "tolerance_usecs" => self.tolerance = Span::from_us(number()?.into()),
            "tolerance_percent" => self.tolerance_ratio = f64::from(number()?) / 100.0,
            "tcp_ts_tick_usecs" => {
                let tick = number()?;
                self.timestamp_tick = (tick > 0).then(|| Span::from_us(tick.into()));
            }
            "tcp_ts_ecr_scaled" => self.infers_echoes = true,
            "strict_segments" => self.strict_segments = true,
            other => return unsupported(option.at, format!("the option --{other}")),
        }
        Ok(())
    }

    /// The value of SO_RCVBUF: FreeBSD rounds the buffer of a connection to whole segments.
    pub fn receive_buffer(&self, is_connected: bool, mss: u16) -> u32 {
        let bytes = self.tcp.receive_buffer.initial;
        if self.system == ScriptSystem::FreeBsd && is_connected {
            return bytes.next_multiple_of(u32::from(mss).max(1));
        }
        bytes
    }

    /// The configuration of a connection: the stack's buffer is as long as [`RunSettings::receive_buffer`] says.
    pub fn connection(&self, tcp: &TcpConfig) -> TcpConfig {
        let mut tcp = tcp.clone();
        if self.system == ScriptSystem::FreeBsd {
            let headers = if self.local.is_ipv6() { 60 } else { 40 };
            let mss = self.mtu.saturating_sub(headers).max(1);
            let round = |bytes: u32| bytes.next_multiple_of(mss);
            let buffer = tcp.receive_buffer;
            tcp.receive_buffer = BufferLimits { initial: round(buffer.initial), ..buffer };
        }
        tcp
    }
}

/// Port of both ends, unless a script says otherwise.
const PORT: u16 = 8_080;

fn port(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(PORT)
}

fn unsupported<T>(at: ScriptPosition, what: impl Into<String>) -> Result<T, ScriptError> {
    Err(ScriptError::Unsupported { at, what: what.into() })
}

/// What a policy number of Linux or FreeBSD means.
fn ecn_policy(value: &str) -> Option<EcnPolicy> {
    match value {
        "0" => Some(EcnPolicy::Off),
        "1" => Some(EcnPolicy::Offer),
        "2" => Some(EcnPolicy::Accept),
        _ => None,
    }
}
