//! Pages: any width, with and without color, and readers that close the pipe.

use std::io::Read;

use crate::home::{TestHome, installed, text};
use crate::support::PLUMB;

#[test]
fn pages_fit_a_terminal_of_40_columns() {
    let place = TestHome::new();
    place.with_stored_run();
    place.assert_success("ladder --launches=1 --set=mechanism=pipe,unix-stream");
    let lines =
        ["show last", "show last~1", "runs", "list experiments", "list mechanisms", "doctor"];
    for words in lines {
        let output = place.command(words).env("COLUMNS", "40").output().unwrap();
        assert!(output.status.success());
        let page = String::from_utf8(output.stdout).unwrap();
        assert!(page.lines().count() > 3, "{words:?}: {page}");
        for line in page.lines() {
            // A path or an id is never broken, since it is there to be copied.
            let is_word = !line.trim().contains(' ');
            assert!(line.chars().count() <= 40 || is_word, "{words:?}: {line:?}");
        }
    }
}

#[test]
fn color_follows_terminal_environment_and_option() {
    let place = TestHome::new();
    let colored = |variables: &[(&str, &str)], words: &str| {
        let mut command = place.command(words);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains('\u{1b}')
    };
    assert!(!colored(&[], "doctor"), "a pipe gets no colour");
    assert!(colored(&[("CLICOLOR_FORCE", "1")], "doctor"));
    assert!(!colored(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], "doctor"));
    assert!(colored(&[("NO_COLOR", "1")], "doctor --color=always"));
    assert!(!colored(&[("CLICOLOR_FORCE", "1")], "doctor --color=never"));
    assert!(!colored(&[("CLICOLOR_FORCE", "1")], "doctor --json"));
}

#[test]
fn ascii_output_has_only_ascii() {
    let place = TestHome::new();
    place.with_stored_run();
    place.assert_success("ladder --launches=1 --set=mechanism=pipe");
    for words in ["show last", "show last~1", "doctor", "list"] {
        let page = place.stdout_of(&format!("{words} --ascii"));
        let beyond: String = page.chars().filter(|c| !c.is_ascii()).collect();
        assert!(beyond.is_empty(), "{words:?}: {beyond}");
    }
    let output = place.command("show last").env("LC_ALL", "C").output().unwrap();
    assert!(output.stdout.is_ascii(), "a locale without Unicode gets none");
}

#[test]
fn html_is_not_printed_on_a_terminal() {
    let place = TestHome::new();
    place.with_stored_run();
    if installed("script") {
        let command = format!("{PLUMB} report last");
        let output =
            place.command_of("script", &["-qefc", &command, "/dev/null"]).output().unwrap();
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{shown}");
        assert!(shown.contains("plumb report last -o report.html"), "{shown}");
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let place = TestHome::new();
    for words in ["help method", "list experiments", "--help"] {
        let mut child = place.spawn(words);
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{words:?}: {stderr}");
        assert_eq!(stderr, "", "{words:?}");
    }
}

#[test]
fn quiet_prints_only_errors() {
    let place = TestHome::new();
    let output = place.assert_success("run call.kernel --quick --launches=1 --quiet");
    assert_eq!(output.stderr, "");
    assert!(!place.run("show nothing-like-it --quiet").stderr.is_empty());
}

#[test]
fn every_subcommand_has_help_with_examples() {
    let place = TestHome::new();
    assert!(place.assert_success("help method").stdout.starts_with("How plumb measures"));
    let help = place.assert_success("--help").stdout;
    let subcommands = "ladder doctor list run rerun runs show compare ab report export import selftest \
                       stack store help completions man link net agent explain study";
    for subcommand in subcommands.split_whitespace() {
        assert!(help.contains(subcommand), "{subcommand}");
        let page = place.stdout_of(&["help", subcommand]);
        assert!(page.contains("Examples:"), "{subcommand}: {page}");
    }
}

#[test]
fn reports_and_exports_are_written_whole() {
    let place = TestHome::new();
    place.with_stored_run();
    let page = place.path("page.html");
    place.assert_success(&["report", "last", "-o", page.to_str().unwrap()]);
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!doctype html>"));
    for link in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!html.contains(link), "no request may be made: {link}");
    }
    for (format, start) in [
        ("json", "{"),
        ("jsonl", "{\"schema\":\"plumb.block/1\""),
        ("csv", "run,experiment,response,"),
        ("markdown", "## "),
        ("hdr", "#[Histogram log format version"),
    ] {
        let text = place.assert_success(&["export", "last", "--format", format]).stdout;
        assert!(text.starts_with(start), "{format}: {text}");
    }
    place.assert_error("report last -o /proc/page.html", 2, &["cannot write /proc/page.html"]);
}

#[test]
fn completions_and_manual_pages_name_every_subcommand() {
    let place = TestHome::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.stdout_of(&["completions", shell]).contains("selftest"), "{shell}");
    }
    place.assert_success("man pages");
    let page = std::fs::read_to_string(place.path("pages/plumb-compare.1")).unwrap();
    assert!(page.contains("margin"));
}
