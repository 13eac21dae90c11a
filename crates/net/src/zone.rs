//! Addresses that are one link's only, in words.
//!
//! Left out: reading them, which the resolver does.

use std::net::SocketAddr;

use plumb_sys::inet;

/// An address without its port: with its zone, where it has one, by the name of the interface, as it is asked for.
pub fn zoned(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            let index = v6.scope_id();
            let zone = inet::interface_name(index).unwrap_or_else(|_| index.to_string());
            format!("{}%{zone}", v6.ip())
        }
        _ => address.ip().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddrV6};

    use super::*;

    #[test]
    fn an_address_keeps_its_zone_by_name_and_by_number_where_it_has_none() {
        let of = |index| zoned(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 0, index).into());
        assert_eq!((of(0).as_str(), of(1).as_str()), ("::1", "::1%lo"));
        assert_eq!(of(4_000_000_000), "::1%4000000000");
        assert_eq!(zoned(([192, 0, 2, 1], 7).into()), "192.0.2.1");
    }
}
