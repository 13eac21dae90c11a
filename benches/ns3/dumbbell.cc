// The dumbbell of crates/sim/examples/race.rs in ns-3: as many Reno connections as the first argument says, for as many
// simulated seconds as the second, through a bottleneck of 1 Gb/s; the third is a seed. Prints one line of JSON. With "count" behind them
// it counts packets at every device, which takes time, so that speed is measured without.
//
// `make race-sim` builds it. Routes are by nix vectors, which of what ns-3 has take the least time for each packet.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/nix-vector-routing-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

static uint64_t hops = 0;

static uint64_t drops = 0;

static void CountHop(Ptr<const Packet>) { hops++; }
static void CountDrop(Ptr<const Packet>) { drops++; }

int main(int argc, char *argv[])
{
    const uint32_t flows = argc > 1 ? std::atoi(argv[1]) : 10;
    const double seconds = argc > 2 ? std::atof(argv[2]) : 5.0;
    RngSeedManager::SetRun(argc > 3 ? std::atoi(argv[3]) : 1);
    const bool counts = argc > 4 && std::string(argv[4]) == "count";

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpLinuxReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(16 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(16 << 20));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));

    NodeContainer routers, left, right;
    routers.Create(2);
    left.Create(flows);
    right.Create(flows);

    PointToPointHelper access, bottleneck;
    access.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    access.SetChannelAttribute("Delay", StringValue("1ms"));
    access.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("2000p"));
    bottleneck.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    bottleneck.SetChannelAttribute("Delay", StringValue("10ms"));
    bottleneck.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("2000p"));

    Ipv4NixVectorHelper routing;
    InternetStackHelper stack;
    stack.SetRoutingHelper(routing);
    stack.InstallAll();
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    TrafficControlHelper traffic;
    auto join = [&](PointToPointHelper &helper, Ptr<Node> a, Ptr<Node> b) {
        NetDeviceContainer devices = helper.Install(a, b);
        Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
        // The queue of the device is the only one, as in plumb.
        traffic.Uninstall(devices);
        addresses.NewNetwork();
        return std::make_pair(devices, interfaces);
    };
    auto middle = join(bottleneck, routers.Get(0), routers.Get(1));
    ApplicationContainer sinks;
    Ptr<UniformRandomVariable> starts = CreateObject<UniformRandomVariable>();
    for (uint32_t flow = 0; flow < flows; flow++)
    {
        join(access, left.Get(flow), routers.Get(0));
        auto end = join(access, right.Get(flow), routers.Get(1));
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5001));
        sinks.Add(sink.Install(right.Get(flow)));
        BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(end.second.GetAddress(0), 5001));
        source.SetAttribute("MaxBytes", UintegerValue(0));
        source.SetAttribute("SendSize", UintegerValue(64 << 10));
        source.Install(left.Get(flow)).Start(Seconds(starts->GetValue(0.0, 0.1)));
    }

    auto queue = DynamicCast<PointToPointNetDevice>(middle.first.Get(0))->GetQueue();
    // Before a full queue of a device, traffic control drops.
    routers.Get(0)->GetObject<TrafficControlLayer>()->TraceConnectWithoutContext("TcDrop", MakeCallback(&CountDrop));
    if (counts)
    {
        Config::ConnectWithoutContext("/NodeList/*/DeviceList/*/$ns3::PointToPointNetDevice/PhyRxEnd",
                                      MakeCallback(&CountHop));
    }

    const auto begun = std::chrono::steady_clock::now();
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begun;

    // Those that were queued.
    const double entered = queue->GetTotalReceivedPackets();
    uint64_t received = 0;
    for (uint32_t flow = 0; flow < flows; flow++)
    {
        received += DynamicCast<PacketSink>(sinks.Get(flow))->GetTotalRx();
    }
    std::printf("{\"flows\":%u,\"seconds\":%g,\"wall\":%.6f,\"hops\":%llu,\"goodput\":%.0f,\"loss\":%.6f}\n",
                flows, seconds, wall.count(), (unsigned long long)hops, received * 8.0 / seconds,
                drops / std::max(1.0, drops + entered));
    Simulator::Destroy();
    return 0;
}
