//! `plumb net --iperf3` and `plumb agent --iperf3`: iperf3's protocol, as client and as server.
//!
//! Both have their own options, with iperf3's names: `--iperf3` after `net` or `agent` selects a separate, hidden
//! subcommand, so `--iperf3 --help` is its page.

use std::ffi::OsString;

pub mod client;
pub mod page;
pub mod server;

/// The option that selects the subcommand.
const SWITCH: &str = "--iperf3";

/// The commands and their hidden subcommands.
pub(super) const COMMANDS: [(&str, &str); 2] = [("net", "net-iperf3"), ("agent", "agent-iperf3")];

/// The arguments, with the command replaced by its hidden subcommand if `--iperf3` follows it.
pub fn select_subcommand(mut words: Vec<OsString>) -> Vec<OsString> {
    // The value of a global option before the command may be any word.
    let is_value = |words: &[OsString], at: usize| {
        at > 0 && (words[at - 1] == "--store" || words[at - 1] == "--color")
    };
    let command = (1..words.len())
        .find(|at| !words[*at].to_string_lossy().starts_with('-') && !is_value(&words, *at));
    let Some(command) = command else { return words };
    let Some((_, name)) = COMMANDS.iter().find(|(short, _)| words[command] == *short) else {
        return words;
    };
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    if let Some(switch) = (command..end).find(|at| words[*at] == SWITCH) {
        words.remove(switch);
        words[command] = (*name).into();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(line: &str) -> String {
        let words = select_subcommand(line.split(' ').map(OsString::from).collect());
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn switch_selects_the_subcommand_from_any_place_after_it() {
        assert_eq!(chosen("plumb net --iperf3 host -t 5"), "plumb net-iperf3 host -t 5");
        assert_eq!(chosen("plumb --json net host --iperf3"), "plumb --json net-iperf3 host");
        assert_eq!(chosen("plumb agent --iperf3"), "plumb agent-iperf3");
        assert_eq!(chosen("plumb --store net agent --iperf3"), "plumb --store net agent-iperf3");
    }

    #[test]
    fn other_commands_keep_their_arguments() {
        for line in ["plumb", "plumb net host", "plumb run --iperf3", "plumb link -- net --iperf3"]
        {
            assert_eq!(chosen(line), line);
        }
    }
}
