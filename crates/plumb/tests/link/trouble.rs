//! Bad input and trouble: one clear message each, with its way out.

use std::os::unix::fs::PermissionsExt;

use crate::bench::{Bench, text};

#[test]
fn what_cannot_be_done_is_said_with_its_fix_before_anything_is_made() {
    let Some(bench) = Bench::new() else { return };
    for (words, told) in [
        (["--rate", "0"].as_slice(), "zero"),
        (&["--rate", "-1mbit"], "negative"),
        (&["--rate", "fast"], "10mbit"),
        (&["--delay", "25"], "25ms"),
        (&["--loss", "2"], "0.1%"),
        (&["--preset", "geo-satelite"], "did you mean 'geo-satellite'?"),
        (&["--queue", "fifo"], "drop-tail"),
        (&["--up", "rte=1mbit"], "rate"),
        (&["--up", "rate=trace:/no/such/file"], "/no/such/file"),
        (&["--rate", "400gbit", "--delay", "1h"], "GiB"),
        (&["--mtu", "60"], "68"),
        (&["--schedule", "/no/such/file"], "cannot read the schedule"),
        (&["--name", "../x"], "no name for a link"),
        (&["--precision", "exact"], "hybrid"),
    ] {
        let (code, said) = bench.failed(&[words, &["--isolated", "--", "true"]].concat());
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains(told), "{words:?}: no '{told}' in {said}");
    }
    let (code, said) = bench.failed(&["--isolated", "--", "no-such-program"]);
    assert!(code == Some(127) && said.contains("cannot start 'no-such-program'"), "{said}");
    let (code, said) = bench.failed(&["--isolated", "--", "/etc/passwd"]);
    assert!(code == Some(126) && said.contains("cannot start '/etc/passwd'"), "{said}");
    let (code, said) = bench.failed(&["--isolated", "--pcap", "/no/dir/x", "--", "true"]);
    assert!(code == Some(2) && said.contains("cannot write /no/dir/x"), "{said}");
    let (code, said) = bench.failed(&["up", "lab", "--hosts", "a"]);
    assert!(code == Some(2) && said.contains("--hosts a,b"), "{said}");
    let (code, said) = bench.failed(&["up", "lab", "--hosts", "a,a"]);
    assert!(code == Some(2) && said.contains("two hosts are called 'a'"), "{said}");
    let (code, said) = bench.failed(&["set", "nobody", "--rate", "1mbit"]);
    assert!(code == Some(2) && said.contains("no link 'nobody' is running"), "{said}");
}

#[test]
fn a_directory_of_somebody_else_is_not_trusted_with_names() {
    let Some(bench) = Bench::new() else { return };
    let open = bench.directory.path().join("plumb");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = bench.link(&["--isolated", "--", "true"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("not this user's alone"), "{said}");
}
