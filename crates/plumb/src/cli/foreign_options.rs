//! Options of ping and iperf3: taken where an option here means the same, else answered with the one that
//! is nearest.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory as _};

use super::Cli;
use crate::problem::Problem;

/// Letters, and the options that mean what they mean elsewhere: the first of them that a command has takes the letter.
const LETTERS: [(char, &[&str]); 11] = [
    ('t', &["time", "duration"]),
    ('R', &["receive"]),
    ('b', &["rate"]),
    ('u', &[]),
    ('i', &["interval"]),
    ('n', &["bytes"]),
    ('P', &["streams"]),
    ('w', &["window"]),
    ('l', &["length", "size"]),
    ('c', &["count"]),
    ('C', &["congestion"]),
];

/// What to write where a command has no such option, or where it means something else: command, option, what to write.
const INSTEAD: [(&str, &str, &str); 16] = [
    ("net", "-c", "the host alone: plumb net HOST"),
    ("net", "--client", "the host alone: plumb net HOST"),
    ("net", "-s", "plumb agent --listen on the other host; over ssh no server is needed"),
    ("net", "--server", "plumb agent --listen on the other host; over ssh no server is needed"),
    ("net", "-n", "a duration: -t TIME"),
    ("net", "--bytes", "a duration: -t TIME"),
    ("net", "-k", "a duration: -t TIME"),
    ("net", "-J", "--json"),
    ("net", "-O", "--warm-up TIME"),
    ("net", "--omit", "--warm-up TIME"),
    ("net", "-d", "--only both"),
    ("net", "--bidir", "--only both"),
    ("net", "-p", "[HOST]:PORT for a port of ssh, or --iperf3 for a server of iperf3"),
    ("net", "-A", "--cpu-placement"),
    ("stack ping", "-l", "--size BYTES"),
    ("stack send", "-l", "--size BYTES, of whole frames"),
];

/// The same of every command that has an option: letter, that option, what to write.
const NEAREST: [(&str, &str, &str); 12] = [
    ("-t", "budget", "--budget TIME"),
    ("-t", "count", "--count N"),
    ("-n", "launches", "--launches N"),
    ("-n", "count", "--count N"),
    ("-n", "rounds", "--rounds N"),
    ("-n", "items", "--items N"),
    ("-c", "launches", "--launches N"),
    ("-c", "rounds", "--rounds N"),
    ("-l", "launches", "--set size=BYTES"),
    ("-u", "launches", "--set mechanism=udp4"),
    ("-w", "launches", "--set buffer=LEVEL"),
    ("-C", "launches", "--set congestion=NAME"),
];

/// The command line, with the letters of other tools, and help that fits any terminal.
pub fn command() -> Command {
    with_letters(Cli::command(), "")
}

fn with_letters(mut command: Command, path: &str) -> Command {
    if let Some(text) = command.get_after_help().map(|text| flowing(&text.to_string())) {
        command = command.after_help(text);
    }
    for (letter, options) in LETTERS {
        let is_taken = command.get_arguments().any(|it| it.get_short() == Some(letter));
        let short = format!("-{letter}");
        let is_else = INSTEAD.iter().any(|(of, it, _)| *of == path && *it == short);
        let named = |name: &&str| command.get_arguments().find(|it| it.get_long() == Some(name));
        let found = options.iter().find_map(named).map(|it| it.get_id().clone());
        if let Some(id) = found.filter(|_| !is_taken && !is_else) {
            command = command.mut_arg(id, |it: Arg| it.short(letter));
        }
    }
    let inner = command.get_subcommands().filter(|it| !it.is_hide_set());
    let names: Vec<String> = inner.map(|it| it.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}");
        command.mut_subcommand(name, |it| with_letters(it, path.trim_start()))
    })
}

/// A text whose paragraphs have no line ends of their own, so that they fit any terminal; indented lines stay.
fn flowing(text: &str) -> String {
    let mut out = String::new();
    let mut before = "";
    for line in text.lines() {
        let is_part = |line: &str| !line.is_empty() && !line.starts_with(' ');
        let is_one = is_part(before) && is_part(line) && !before.ends_with(':');
        out += if is_one { " " } else { "\n" };
        out += line;
        before = line;
    }
    out.trim_start().to_owned()
}

/// The error for an option of another tool.
pub fn problem(error: &clap::Error, arguments: &[OsString]) -> Option<Problem> {
    let (ErrorKind::UnknownArgument, ContextValue::String(given)) =
        (error.kind(), error.get(ContextKind::InvalidArg)?)
    else {
        return None;
    };
    let given = given.split('=').next().unwrap_or(given);
    let root = Cli::command();
    let (mut command, mut path) = (&root, Vec::new());
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        if let Some(inner) = command.find_subcommand(word) {
            command = inner;
            path.push(inner.get_name());
        }
    }
    let path = path.join(" ");
    let has = |name: &str| command.get_arguments().any(|it| it.get_long() == Some(name));
    let told = INSTEAD.iter().find(|(of, option, _)| *of == path && *option == given);
    let told = told.or_else(|| NEAREST.iter().find(|(it, of, _)| *it == given && has(of)));
    let is_known = LETTERS.iter().any(|(letter, _)| given == format!("-{letter}"));
    let fix = match told {
        Some((.., instead)) => format!("write {instead}"),
        None if is_known => format!("see 'plumb {path} --help' for what it has"),
        None => return None,
    };
    Some(
        Problem::usage(format!("there is no option '{given}' here"))
            .because("other tools have it; 'plumb help units' lists what means the same")
            .fix(fix),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = command().try_get_matches_from(&words).unwrap_err();
        problem(&error, &words).unwrap_or_else(|| panic!("{line}: {error}")).to_string()
    }

    #[test]
    fn an_option_of_another_tool_is_answered_with_the_one_here() {
        for (command, option, instead) in INSTEAD {
            let told = error_of(&format!("plumb {command} 127.0.0.1 {option}"));
            assert!(told.contains(instead), "{command} {option}: {told}");
        }
        for (line, instead) in [
            ("run latency.local -t 3", "--budget TIME"),
            ("ab latency.local --factor wake=block,spin -n 5", "--launches N"),
            ("study ipc -l 64", "--set size=BYTES"),
            ("display bench -c 3", "--rounds N"),
            ("stack get http://10.0.0.1/ -R", "'plumb stack get --help'"),
            ("link -P 4 -- true", "'plumb link --help'"),
        ] {
            let told = error_of(&format!("plumb {line}"));
            assert!(told.contains(instead), "{line}: {told}");
        }
    }

    #[test]
    fn a_letter_is_taken_where_an_option_means_the_same() {
        for line in [
            "net h -t 2 -R",
            "net h -u -b 10M",
            "net h -i 0.2 -P 4 -w 1M -l 64Ki",
            "stack transfer 10.0.0.1:9 -R -t 2 -C cubic",
            "stack transfer 10.0.0.1:9 -n 1M",
            "stack get http://10.0.0.1/ -C cubic",
            "stack ping 10.0.0.1 -c 3 -i 0.1",
            "stack send 10.0.0.1:7 -c 5 -t 2",
            "link -b 10mbit -- true",
            "link check -t 1 -b 10mbit",
            "display bench -t 20ms",
            "sim s.toml -t 10",
            "advise -b 10mbit --rtt 20ms --items 5 -l 64",
        ] {
            let words = ["plumb"].into_iter().chain(line.split(' '));
            assert!(command().try_get_matches_from(words).is_ok(), "{line}");
        }
    }
}
