//! Commands of a script: those that set variables are mapped to the configuration, the others are unsupported.

use plumb_base::time::Span;
use plumb_stack::tcp::config::{BufferLimits, KeepAlive, TcpConfig};

use super::{RunSettings, ecn_policy, unsupported};
use crate::error::{ScriptError, ScriptPosition};

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
        self.tcp.ecn = plumb_stack::tcp::config::EcnPolicy::Off;
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
