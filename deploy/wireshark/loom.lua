-- Wireshark dissector for Loom's fields in the VXLAN header. The layout is in
-- docs/wire-format.md; the code that sends it is overlay/vxlan.go.
--
-- It takes UDP port 4789 over from Wireshark's own VXLAN dissector. A header
-- without Loom's Capable bit is handed back to that one, so that other VXLAN
-- extensions still show. Another port: "Decode As..." > LOOM.
--
--   wireshark -X lua_script:deploy/wireshark/loom.lua
--   or copy this file to ~/.local/lib/wireshark/plugins/

local loom = Proto("loom", "Loom fabric (VXLAN)")

local opcodes = {
  [0] = "DATA", [1] = "RTT_REQUEST", [2] = "RTT_REPLY", [3] = "CLEAR",
  [4] = "NOTIFY", [5] = "HELLO", [6] = "EXPLORE", [7] = "EXTENSION",
}

-- docs/wire-format.md has the numbers.
local schemes = { [0] = "none", [1] = "ConWeave", [2] = "Presto", [3] = "Flowcut", [4] = "Reed", [5] = "TCP-Path", [6] = "CAAR", [7] = "HULA" }

local f = {
  scheme   = ProtoField.uint8("loom.scheme", "Scheme", base.DEC, schemes, 0xf0),
  flags    = ProtoField.uint8("loom.flags", "VXLAN flags", base.HEX, nil, 0x0f),
  lbtag    = ProtoField.uint24("loom.lbtag", "LBTag", base.DEC, nil, 0xf00000),
  ce       = ProtoField.uint24("loom.ce", "CE", base.DEC, nil, 0x0e0000),
  fbtag    = ProtoField.uint24("loom.fbtag", "FBTag", base.DEC, nil, 0x01e000),
  fbmetric = ProtoField.uint24("loom.fbmetric", "FBMetric", base.DEC, nil, 0x001c00),
  opcode   = ProtoField.uint24("loom.opcode", "Opcode", base.DEC, opcodes, 0x000380),
  epoch    = ProtoField.uint24("loom.epoch", "Epoch", base.DEC, nil, 0x000060),
  rerouted = ProtoField.bool("loom.rerouted", "Rerouted", 24, nil, 0x000010),
  tail     = ProtoField.bool("loom.tail", "Tail", 24, nil, 0x000008),
  shim     = ProtoField.bool("loom.shim", "Shim", 24, nil, 0x000004),
  fbvalid  = ProtoField.bool("loom.fbvalid", "FBValid", 24, nil, 0x000002),
  capable  = ProtoField.bool("loom.capable", "Capable", 24, nil, 0x000001),
  vni      = ProtoField.uint24("loom.vni", "VNI", base.DEC),
  path     = ProtoField.uint8("loom.path", "PathID", base.HEX),
  uplink   = ProtoField.uint8("loom.path.uplink", "Uplink", base.DEC, nil, 0xf0),
  selector = ProtoField.uint8("loom.path.selector", "Selector", base.DEC, nil, 0x0f),
  tx       = ProtoField.uint16("loom.tx_tstamp", "TX_TSTAMP (us)", base.DEC),
  arg      = ProtoField.uint16("loom.arg", "Arg", base.DEC),
  tail_tx  = ProtoField.uint16("loom.tail_tx_tstamp", "TAIL_TX_TSTAMP (us)", base.DEC),
  echo     = ProtoField.uint16("loom.echo", "Echo of a TX_TSTAMP or TAIL_TX_TSTAMP (us)", base.DEC),

  hello_version     = ProtoField.uint8("loom.hello.version", "Version", base.DEC),
  hello_large       = ProtoField.bool("loom.hello.large", "Padded", 8, nil, 0x01),
  hello_leaving     = ProtoField.bool("loom.hello.leaving", "Leaving", 8, nil, 0x02),
  hello_every       = ProtoField.uint8("loom.hello.every", "Time between rounds, ms", base.DEC),
  hello_echo_tag    = ProtoField.uint8("loom.hello.echo_tag", "Echo tag", base.DEC),
  hello_present     = ProtoField.uint16("loom.hello.present", "Paths of this round", base.HEX),
  hello_silent      = ProtoField.uint16("loom.hello.silent", "Silent paths", base.HEX),
  hello_lossy       = ProtoField.uint16("loom.hello.lossy", "Lossy paths", base.HEX),
  hello_narrow      = ProtoField.uint16("loom.hello.narrow", "Narrow paths", base.HEX),
  hello_loss        = ProtoField.uint16("loom.hello.loss", "Loss by the echo tag, of 65535", base.DEC),
  hello_boot        = ProtoField.uint32("loom.hello.boot", "Boot", base.HEX),
  hello_round       = ProtoField.uint32("loom.hello.round", "Round", base.DEC),
  hello_large_round = ProtoField.uint32("loom.hello.large_round", "Last padded round", base.DEC),
  hello_sent        = ProtoField.uint32("loom.hello.sent", "Packets sent by this path", base.DEC),
  hello_nonce       = ProtoField.uint64("loom.hello.nonce", "Nonce", base.HEX),
  hello_echo        = ProtoField.uint64("loom.hello.echo", "Echo of the receiver's nonce", base.HEX),
}
loom.fields = f

local cut = ProtoExpert.new("loom.cut", "Shim is set, but the packet ends before it",
  expert.group.MALFORMED, expert.severity.ERROR)
loom.experts = { cut }

local ports = DissectorTable.get("udp.port")
local vxlan = ports:get_dissector(4789) -- Wireshark's own; it has no name to get it by
local ethernet = Dissector.get("eth_withoutfcs")

local FLAGS, FLAG_VNI, CAPABLE, SHIM, TAIL, REROUTED = 0x0f, 0x08, 0x01, 0x04, 0x08, 0x10
local CONWEAVE = 1
local RTT_REPLY, CLEAR, HELLO = 2, 3, 5

-- hello shows the body of a HELLO.
local function hello(body, tree)
  local leaving = math.floor(body(1, 1):uint() / 2) % 2 == 1
  local t = tree:add(body, string.format("HELLO, round %d%s", body(20, 4):uint(), leaving and ", leaving" or ""))
  for _, field in ipairs({
    { "hello_version", 0, 1 }, { "hello_large", 1, 1 }, { "hello_leaving", 1, 1 }, { "hello_echo_tag", 2, 1 },
    { "hello_every", 3, 1 }, { "hello_present", 4, 2 },
    { "hello_silent", 6, 2 }, { "hello_lossy", 8, 2 }, { "hello_narrow", 10, 2 }, { "hello_loss", 12, 2 },
    { "hello_boot", 16, 4 }, { "hello_round", 20, 4 }, { "hello_large_round", 24, 4 }, { "hello_sent", 28, 4 },
    { "hello_nonce", 32, 8 }, { "hello_echo", 40, 8 },
  }) do
    t:add(f[field[1]], body(field[2], field[3]))
  end
end

-- arg returns what the second half of the shim is: schemes use it as they like.
local function arg(scheme, op, marks)
  if scheme == CONWEAVE and (op == RTT_REPLY or op == CLEAR) then
    return f.echo
  elseif scheme == CONWEAVE and bit.band(marks, bit.bor(TAIL, REROUTED)) ~= 0 then
    return f.tail_tx
  elseif scheme == 0 and op == HELLO and bit.band(marks, TAIL) ~= 0 then
    return f.echo
  end
  return f.arg
end

function loom.dissector(tvb, pinfo, tree)
  if tvb:len() < 8 or bit.band(tvb(0, 1):uint(), FLAGS) ~= FLAG_VNI or
      bit.band(tvb(3, 1):uint(), CAPABLE) == 0 then
    if not vxlan then
      return 0
    end
    vxlan:call(tvb, pinfo, tree)
    return tvb:len() -- what was dissected in C counts for nothing here
  end
  local shim = bit.band(tvb(3, 1):uint(), SHIM) ~= 0
  local length = shim and 12 or 8
  local scheme = bit.rshift(tvb(0, 1):uint(), 4)
  local op = bit.band(bit.rshift(tvb(1, 3):uint(), 7), 7)

  pinfo.cols.protocol = "LOOM"
  local t = tree:add(loom, tvb(0, math.min(length, tvb:len())))
  t:append_text(string.format(", VNI %d, %s, scheme %d, path %d.%d", tvb(4, 3):uint(), opcodes[op], scheme,
    bit.rshift(tvb(7, 1):uint(), 4), bit.band(tvb(7, 1):uint(), 0xf)))

  t:add(f.scheme, tvb(0, 1))
  t:add(f.flags, tvb(0, 1))
  local bits = tvb(1, 3)
  for _, name in ipairs({ "lbtag", "ce", "fbtag", "fbmetric", "opcode", "epoch",
      "rerouted", "tail", "shim", "fbvalid", "capable" }) do
    t:add(f[name], bits)
  end
  t:add(f.vni, tvb(4, 3))
  local path = t:add(f.path, tvb(7, 1))
  path:add(f.uplink, tvb(7, 1))
  path:add(f.selector, tvb(7, 1))
  if shim then
    if tvb:len() < 12 then
      t:add_proto_expert_info(cut)
      return tvb:len()
    end
    t:add(f.tx, tvb(8, 2))
    t:add(arg(scheme, op, tvb(3, 1):uint()), tvb(10, 2))
  end

  ethernet:call(tvb(length):tvb(), pinfo, tree)
  if op == HELLO and tvb:len() >= length + 14 + 48 then
    hello(tvb(length + 14, 48), t)
  end
  if op >= RTT_REPLY then
    pinfo.cols.info:prepend(opcodes[op] .. " ")
  end
  return tvb:len()
end

ports:add(4789, loom)
