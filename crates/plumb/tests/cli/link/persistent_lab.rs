//! Labs that stay.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::test_home::{LinkTestHome, replies};
use crate::home::wait_for_exit;
use crate::support::{PLUMB, wait_for};

#[test]
fn hosts_of_a_lab_find_each_other_by_name_until_it_is_taken_down() {
    let Some(bench) = LinkTestHome::with(&["ping"]) else { return };
    bench.stdout_of("up lab --hosts a,b --delay 10ms");
    assert_eq!(bench.names(), ["lab"]);
    let said = bench.stdout_of("exec lab a -- ping -c 1 -W 30 b");
    assert!(said.contains("1 received"), "{said}");
    bench.assert_rejected(&[("up lab --hosts a,b", "'lab'"), ("exec lab c -- true", "a, b")]);
    assert_eq!(bench.exit_and_stderr(&["exec", "lab", "a", "--", "sh", "-c", "exit 5"]).0, Some(5));
    let mut sleeper = bench
        .link(&["exec", "lab", "b", "--", "sh", "-c", "echo up; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(sleeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    bench.stdout_of("down lab");
    assert_eq!(wait_for_exit(&mut sleeper).code(), Some(137));
    assert_eq!(bench.names(), Vec::<String>::new());
    bench.assert_rejected(&[("down lab", "'lab'")]);
}

#[test]
fn a_command_on_a_host_dies_with_its_exec() {
    let Some(bench) = LinkTestHome::new() else { return };
    bench.stdout_of("up orphans --hosts a,b");
    let mut exec = bench
        .link(&["exec", "orphans", "a", "--", "sh", "-c", "echo $$; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(exec.stdout.take().unwrap()).read_line(&mut line).unwrap();
    exec.kill().unwrap();
    exec.wait().unwrap();
    // Another host of the lab sees its processes too; whoever adopts this one may leave it a zombie.
    let stat = format!("/proc/{}/stat", line.trim());
    let lives = format!("test -e {stat} && ! grep -q ') Z' {stat}");
    wait_for("the command to end", || {
        bench.exit_and_stderr(&["exec", "orphans", "b", "--", "sh", "-c", &lives]).0 == Some(1)
    });
    bench.stdout_of("down orphans");
}

#[test]
fn plans_use_the_outer_link_behind_it_only() {
    let Some(bench) = LinkTestHome::new() else { return };
    let plan = ["plumb", "run", "latency.remote", "--quick", "--plan"];
    let behind = bench.stdout_of(&[&["--delay", "1ms", "--isolated", "--"], &plan[..]].concat());
    assert!(behind.contains("\"outer\""), "{behind}");
    bench.stdout_of("up ground --hosts a,b");
    let path = format!("PATH={}:/usr/bin:/bin", Path::new(PLUMB).parent().unwrap().display());
    let words = [&["exec", "ground", "a", "--", "env", &path], &plan[..]].concat();
    let said = bench.stdout_of(&words);
    assert!(said.contains("\"veth\"") && !said.contains("\"outer\""), "{said}");
    bench.stdout_of("down ground");
}

#[test]
fn three_hosts_reach_each_other_through_a_switch() {
    let Some(bench) = LinkTestHome::with(&["ping"]) else { return };
    bench.stdout_of("up net --hosts a,b,c --delay 5ms");
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "a")] {
        let said = bench.stdout_of(&format!("exec net {from} -- ping -c 2 -w 10 -i 0.01 {to}"));
        let line = said.lines().find(|line| line.contains("min/avg/max")).unwrap();
        let least: f64 = line.split(['=', '/']).nth(4).unwrap().trim().parse().unwrap();
        assert!(replies(&said)[0] >= 2 && least >= 20.0, "{said}");
    }
    bench.stdout_of("down net");
}

#[test]
fn every_document_of_a_link_counts_all_its_frames() {
    let Some(bench) = LinkTestHome::with(&["ping"]) else { return };
    bench.stdout_of("up seen --hosts a,b --rate 100mbit --delay 1ms");
    let count = |distribution: &Value| -> u64 {
        distribution.as_array().unwrap().iter().map(|step| step[1].as_u64().unwrap()).sum()
    };
    for round in 1..=3 {
        let delay = format!("{round}ms");
        bench.stdout_of(&["set", "seen", "--delay", &delay]);
        bench.stdout_of("exec seen a -- ping -q -c 20 -w 60 -i 0.001 b");
        // Twice, the second time with little that is new.
        for _ in 0..2 {
            let shown = bench.show("seen");
            let frames = shown["driver"]["frames"].as_u64().unwrap();
            assert!(frames >= 40 * round, "{shown}");
            assert_eq!(count(&shown["driver"]["lateness_us"]), frames, "{shown}");
            for direction in shown["directions"].as_array().unwrap() {
                let left = direction["frames_out"].as_u64().unwrap();
                assert!(count(&direction["sojourns_us"]) >= left.max(20 * round), "{direction}");
                let asked = direction["asked"].as_str().unwrap();
                assert!(asked.contains(&format!("delay={delay}")), "{direction}");
            }
        }
    }
    bench.stdout_of("down seen");
}
