//! What programs inside find in `/etc/resolv.conf` and `/etc/hosts`.
//!
//! Left out: showing it to them (`plumb_host::lab::show_text`).

use std::fmt::Write as _;
use std::net::IpAddr;

/// A resolv.conf(5) that asks `resolver` instead of those that `outside` names, and is as that one
/// otherwise.
pub fn resolv_conf(outside: &str, resolver: IpAddr) -> String {
    let mut text = format!("nameserver {resolver}\n");
    for line in outside.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        if matches!(word, "search" | "domain" | "options" | "sortlist") {
            text += line.trim();
            text.push('\n');
        }
    }
    text
}

/// A hosts(5) with the loopback and the hosts of a lab.
pub fn hosts<'a>(hosts: impl IntoIterator<Item = (&'a str, Vec<IpAddr>)>) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n".to_owned();
    for (name, addresses) in hosts {
        for address in addresses {
            writeln!(text, "{address} {name}").expect("writing to a String cannot fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_asked_at_the_far_side_with_the_outer_options() {
        let outside =
            "# comment\nnameserver 127.0.0.53\noptions edns0\nsearch a.example b.example\n";
        let inside = resolv_conf(outside, "10.77.0.2".parse().unwrap());
        assert_eq!(inside, "nameserver 10.77.0.2\noptions edns0\nsearch a.example b.example\n");
    }

    #[test]
    fn every_host_has_a_line_for_each_address() {
        let text = hosts([("a", vec!["10.77.0.1".parse().unwrap(), "fd77::1".parse().unwrap()])]);
        assert!(text.ends_with("10.77.0.1 a\nfd77::1 a\n"));
        assert!(text.starts_with("127.0.0.1 localhost\n"));
    }
}
