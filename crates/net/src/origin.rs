//! Where a stranger comes from, as far as it cannot choose that: by which a server limits how much one of them may have.
//!
//! Left out: the limits.

use std::net::IpAddr;

/// The address of an IPv4 host, however it is written, or the network that a host of IPv6 has: any of 64 bits of
/// addresses is its own.
pub fn origin(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_ipv6_is_one_at_all_of_its_addresses_and_ipv4_is_itself_in_both_spellings() {
        let of = |text: &str| origin(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:7::1"), of("2001:db8:0:7:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:0:7::1"), of("2001:db8:0:8::1"));
        assert_eq!(of("192.0.2.9"), of("::ffff:192.0.2.9"));
        assert_ne!(of("192.0.2.9"), of("192.0.2.10"));
    }
}
