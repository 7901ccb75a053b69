//! Bytes in, bytes out: connections, listeners, protocols and servers, in callbacks.

mod addresses;
mod bind;
mod buffer;
mod conn;
mod connector;
mod guard;
mod hub;
mod layer;
mod lent_conn;
mod limits;
mod link;
mod listen_options;
mod listener;
mod memory;
mod operations;
mod output;
mod packet;
mod placement;
mod protocol;
mod rate;
mod rate_limit;
mod relay;
mod room;
mod scratch;
mod server;
mod settings;
mod socket_file;
mod stats;
mod supervisor;
mod turned_away;
mod udp;
mod worker;
mod write_buffer;

pub use addresses::ToAddresses;
pub use bind::ListenSocket;
pub use buffer::Buffer;
#[doc(no_inline)]
pub use bytes::Bytes;
pub use conn::Conn;
pub use connector::{Connecting, Connector, Retry};
#[doc(no_inline)]
pub use coracle_loop::demux::{Address, KeepAlive, SocketOption, TcpInfo};
pub use hub::ConnHandle;
pub use layer::{Layer, Layered};
pub use lent_conn::LentConn;
pub use limits::{
    Bottleneck, Capacity, CapacitySettings, available_cores, capacity, memory_bytes,
    raise_descriptor_limit,
};
pub use listen_options::ListenOptions;
pub use listener::{Listener, attach};
pub use memory::MemoryLimit;
pub use packet::Packet;
pub use placement::Placement;
pub use protocol::{Protocol, Reason};
pub use rate::TokenBucket;
pub use rate_limit::{RateGroup, RateLimit};
pub use relay::Relay;
pub use server::{Running, Server, ServerHandle};
pub use settings::Settings;
pub use socket_file::SocketFile;
pub use stats::Stats;
pub use supervisor::Supervisor;
pub use turned_away::TurnedAway;
pub use udp::{Datagram, Udp, UdpSettings};
pub use worker::Worker;
pub use write_buffer::WriteBuffer;
