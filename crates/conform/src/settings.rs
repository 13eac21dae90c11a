//! How a script is run: addresses and tolerances from its options, the stack's configuration from its commands. Commands that
//! set no known variable are unsupported.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_base::time::Span;
use plumb_stack::tcp::config::{BufferLimits, EcnPolicy, KeepAlive, Personality, TcpConfig};

use crate::outcome::{ScriptError, ScriptPosition};
use crate::script::ScriptOption;

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

/// Variables that may be set to these values without effect: the stack behaves so, or nothing depends on it.
const WITHOUT_EFFECT: [(&str, &str); 22] = [
    ("net.ipv4.tcp_frto", "2"),
    ("net.ipv4.tcp_dsack", "1"),
    ("net.ipv4.tcp_fack", "0"),
    ("net.ipv4.tcp_reordering", "3"),
    ("net.ipv4.tcp_early_retrans", "*"),
    ("net.ipv4.tcp_recovery", "1"),
    ("net.ipv4.tcp_tso_win_divisor", "*"),
    ("net.ipv4.tcp_syncookies", "1"),
    ("net.ipv4.tcp_no_metrics_save", "*"),
    ("net.ipv4.tcp_autocorking", "*"),
    ("net.ipv4.tcp_min_tso_segs", "*"),
    ("net.inet.tcp.hostcache.purgenow", "*"),
    ("net.inet.tcp.blackhole", "0"),
    ("net.inet.tcp.rexmit_slop", "200"),
    ("net.inet.tcp.rexmit_drop_options", "0"),
    ("net.inet.tcp.syncookies", "1"),
    ("net.inet.tcp.syncookies_only", "0"),
    ("net.inet.tcp.icmp_may_rst", "1"),
    ("net.inet.tcp.keepinit", "75000"),
    ("net.inet.tcp.tolerate_missing_ts", "0"),
    ("net.inet.tcp.path_mtu_discovery", "1"),
    ("net.inet.tcp.pmtud_blackhole_detection", "*"),
];

impl RunSettings {
    /// Does what a command between backquotes does, as far as it sets variables.
    ///
    /// # Errors
    /// [`ScriptError::Unsupported`] for any other command, variable or value.
    pub fn run_command(&mut self, at: ScriptPosition, command: &str) -> Result<(), ScriptError> {
        for line in command.split(['\n', ';']).map(str::trim) {
            let mut words = line.split_whitespace();
            let Some(program) = words.next() else { continue };
            let name = program.rsplit('/').next().unwrap_or(program);
            match name {
                "sysctl" => self.set_all(at, words.filter(|word| !word.starts_with('-')), line)?,
                "set_sysctls.py" => self.set_all(at, words, line)?,
                "defaults.sh" => self.use_defaults(),
                // Restores what the script set; nothing outlasts a run.
                _ if name.starts_with("sysctl_restore_") => {}
                "setkey" if words.next() == Some("-F") => {}
                _ if line.starts_with("ip tcp_metrics flush") => {}
                _ => return unsupported(at, format!("the command '{line}'")),
            }
        }
        Ok(())
    }

    fn set_all<'a>(
        &mut self,
        at: ScriptPosition,
        words: impl Iterator<Item = &'a str>,
        line: &str,
    ) -> Result<(), ScriptError> {
        // "a b c" is one value: words without an equals sign belong to the one before.
        let mut settings: Vec<(String, String)> = Vec::new();
        for word in words.take_while(|word| !word.starts_with('>')) {
            if let Some((name, value)) = word.split_once('=') {
                let name = name.strip_prefix("/proc/sys/").unwrap_or(name).replace('/', ".");
                settings.push((name, value.trim_matches('"').to_owned()));
            } else if let Some((_, value)) = settings.last_mut() {
                *value = format!("{value} {}", word.trim_matches('"'));
            }
        }
        for (name, value) in &settings {
            if self.set(name, value).is_none() {
                return unsupported(at, format!("the command '{line}'"));
            }
        }
        Ok(())
    }

    /// The defaults of Google's suite, which its scripts set by a shell script of their own.
    fn use_defaults(&mut self) {
        self.tcp.receive_buffer = BufferLimits { initial: 540_000, max: 15 << 20 };
        self.tcp.send_buffer = BufferLimits { initial: 256 << 10, max: 4 << 20 };
        self.tcp.ecn = EcnPolicy::Off;
        self.tcp.personality.syn_retries = 5;
        self.tcp.personality.syn_ack_retries = 5;
    }

    /// Sets a variable; `None`: there is none, or it cannot have this value.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let without_effect =
            |(known, values): &(&str, &str)| *known == name && (*values == "*" || *values == value);
        if WITHOUT_EFFECT.iter().any(without_effect) {
            return Some(());
        }
        let tcp = &mut self.tcp;
        let on = || match value {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        match name {
            "net.ipv4.tcp_sack" | "net.inet.tcp.sack.enable" => tcp.sack = on()?,
            "net.ipv4.tcp_timestamps" => tcp.timestamps = on()?,
            "net.ipv4.tcp_window_scaling" => tcp.window_scaling = on()?,
            "net.inet.tcp.rfc1323" => (tcp.timestamps, tcp.window_scaling) = (on()?, on()?),
            "net.ipv4.tcp_ecn" | "net.inet.tcp.ecn.enable" => tcp.ecn = ecn_policy(value)?,
            "net.ipv4.tcp_congestion_control" => tcp.congestion = value.parse().ok()?,
            "net.ipv4.tcp_rmem" => tcp.receive_buffer = limits(value)?,
            "net.ipv4.tcp_wmem" => tcp.send_buffer = limits(value)?,
            "net.inet.tcp.recvspace" => tcp.receive_buffer.initial = value.parse().ok()?,
            "kern.ipc.maxsockbuf" => tcp.receive_buffer.max = value.parse().ok()?,
            "net.inet.tcp.sendspace" => tcp.send_buffer = BufferLimits::fixed(value.parse().ok()?),
            "net.ipv4.tcp_syn_retries" => tcp.personality.syn_retries = value.parse().ok()?,
            "net.ipv4.tcp_synack_retries" => {
                tcp.personality.syn_ack_retries = value.parse().ok()?;
            }
            "net.ipv4.tcp_retries2" => tcp.personality.retries = value.parse().ok()?,
            "net.ipv4.tcp_fin_timeout" => tcp.fin_wait_2 = Span::from_secs(value.parse().ok()?),
            "net.ipv4.tcp_mtu_probing" => tcp.mtu_probing = value != "0",
            "net.inet.tcp.drop_synfin" => tcp.personality.syn_fin = !on()?,
            "net.inet.tcp.insecure_rst" => tcp.personality.insecure_rst = on()?,
            "net.inet.tcp.insecure_syn" => tcp.personality.insecure_syn = on()?,
            "net.inet.tcp.rexmit_initial" => {
                tcp.personality.rto_initial = Span::from_ms(value.parse().ok()?);
            }
            "net.inet.tcp.delacktime" => {
                let delay = Span::from_ms(value.parse().ok()?);
                (tcp.personality.delayed_ack.min, tcp.personality.delayed_ack.max) = (delay, delay);
            }
            _ => return set_keep_alive(tcp, name, value),
        }
        Some(())
    }
}

/// Variables of keep-alive, which change its times but do not switch it on.
fn set_keep_alive(tcp: &mut TcpConfig, name: &str, value: &str) -> Option<()> {
    let value: u64 = value.parse().ok()?;
    let standard = KeepAlive::default();
    let known = match name {
        "net.inet.tcp.keepidle" => Span::from_ms(value) == standard.idle,
        "net.inet.tcp.keepintvl" => Span::from_ms(value) == standard.interval,
        "net.inet.tcp.keepcnt" => value == 8,
        _ => false,
    };
    (known && tcp.keep_alive.is_none()).then_some(())
}

/// `least initial most`, of which the least is of no meaning here.
fn limits(value: &str) -> Option<BufferLimits> {
    let mut numbers = value.split_whitespace().skip(1).map(|word| word.parse().ok());
    let limits = BufferLimits { initial: numbers.next()??, max: numbers.next()?? };
    (limits.initial <= limits.max).then_some(limits)
}
