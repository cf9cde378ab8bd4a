// Compares our definitions with those in the kernel's headers here, as far as these have them (Debian 12:
// 6.1).
#include "ublk/uapi.h"

#include <gtest/gtest.h>
#include <linux/ublk_cmd.h>

namespace twinloft::repl::ublk {
namespace {

TEST(UblkUapi, PlainCommandsAreTheHeaders) {
  using uapi::Control, uapi::Io;
  EXPECT_EQ(uapi::plain(Control::get_dev_info), static_cast<unsigned>(UBLK_CMD_GET_DEV_INFO));
  EXPECT_EQ(uapi::plain(Control::add_dev), static_cast<unsigned>(UBLK_CMD_ADD_DEV));
  EXPECT_EQ(uapi::plain(Control::del_dev), static_cast<unsigned>(UBLK_CMD_DEL_DEV));
  EXPECT_EQ(uapi::plain(Control::start_dev), static_cast<unsigned>(UBLK_CMD_START_DEV));
  EXPECT_EQ(uapi::plain(Control::stop_dev), static_cast<unsigned>(UBLK_CMD_STOP_DEV));
  EXPECT_EQ(uapi::plain(Control::set_params), static_cast<unsigned>(UBLK_CMD_SET_PARAMS));
  EXPECT_EQ(uapi::plain(Io::fetch), static_cast<unsigned>(UBLK_IO_FETCH_REQ));
  EXPECT_EQ(uapi::plain(Io::commit_and_fetch), static_cast<unsigned>(UBLK_IO_COMMIT_AND_FETCH_REQ));
}

// The encoding of _IOWR('u', 0x04, 32 bytes): direction, size, letter and number, from the highest bit down.
TEST(UblkUapi, EncodedCommands) {
  using uapi::Control, uapi::Io;
  EXPECT_EQ(uapi::encoded(Control::get_dev_info), 0x80207502u);
  EXPECT_EQ(uapi::encoded(Control::add_dev), 0xc0207504u);
  EXPECT_EQ(uapi::encoded(Control::del_dev), 0xc0207505u);
  EXPECT_EQ(uapi::encoded(Control::start_dev), 0xc0207506u);
  EXPECT_EQ(uapi::encoded(Control::stop_dev), 0xc0207507u);
  EXPECT_EQ(uapi::encoded(Control::set_params), 0xc0207508u);
  EXPECT_EQ(uapi::encoded(Control::get_features), 0x80207513u);
  EXPECT_EQ(uapi::encoded(Control::del_dev_async), 0x80207514u);
  EXPECT_EQ(uapi::encoded(Io::fetch), 0xc0107520u);
  EXPECT_EQ(uapi::encoded(Io::commit_and_fetch), 0xc0107521u);
}

TEST(UblkUapi, LayoutsAreTheHeaders) {
  EXPECT_EQ(sizeof(uapi::ControlCommand), sizeof(ublksrv_ctrl_cmd));
  EXPECT_EQ(offsetof(uapi::ControlCommand, queue_id), offsetof(ublksrv_ctrl_cmd, queue_id));
  EXPECT_EQ(offsetof(uapi::ControlCommand, len), offsetof(ublksrv_ctrl_cmd, len));
  EXPECT_EQ(offsetof(uapi::ControlCommand, addr), offsetof(ublksrv_ctrl_cmd, addr));
  EXPECT_EQ(offsetof(uapi::ControlCommand, data), offsetof(ublksrv_ctrl_cmd, data));
  EXPECT_EQ(sizeof(uapi::IoCommand), sizeof(ublksrv_io_cmd));
  EXPECT_EQ(offsetof(uapi::IoCommand, tag), offsetof(ublksrv_io_cmd, tag));
  EXPECT_EQ(offsetof(uapi::IoCommand, result), offsetof(ublksrv_io_cmd, result));
  EXPECT_EQ(offsetof(uapi::IoCommand, addr), offsetof(ublksrv_io_cmd, addr));
  EXPECT_EQ(sizeof(uapi::DeviceInfo), sizeof(ublksrv_ctrl_dev_info));
  EXPECT_EQ(offsetof(uapi::DeviceInfo, queue_depth), offsetof(ublksrv_ctrl_dev_info, queue_depth));
  EXPECT_EQ(offsetof(uapi::DeviceInfo, state), offsetof(ublksrv_ctrl_dev_info, state));
  EXPECT_EQ(offsetof(uapi::DeviceInfo, max_io_bytes), offsetof(ublksrv_ctrl_dev_info, max_io_buf_bytes));
  EXPECT_EQ(offsetof(uapi::DeviceInfo, dev_id), offsetof(ublksrv_ctrl_dev_info, dev_id));
  EXPECT_EQ(offsetof(uapi::DeviceInfo, pid), offsetof(ublksrv_ctrl_dev_info, ublksrv_pid));
  EXPECT_EQ(offsetof(uapi::DeviceInfo, flags), offsetof(ublksrv_ctrl_dev_info, flags));
  EXPECT_EQ(offsetof(uapi::DeviceInfo, server_flags), offsetof(ublksrv_ctrl_dev_info, ublksrv_flags));
  EXPECT_EQ(sizeof(uapi::IoDescriptor), sizeof(ublksrv_io_desc));
  EXPECT_EQ(offsetof(uapi::IoDescriptor, sectors), offsetof(ublksrv_io_desc, nr_sectors));
  EXPECT_EQ(offsetof(uapi::IoDescriptor, start_sector), offsetof(ublksrv_io_desc, start_sector));
  EXPECT_EQ(sizeof(uapi::BasicParams), sizeof(ublk_param_basic));
  EXPECT_EQ(offsetof(uapi::BasicParams, max_sectors), offsetof(ublk_param_basic, max_sectors));
  EXPECT_EQ(offsetof(uapi::BasicParams, dev_sectors), offsetof(ublk_param_basic, dev_sectors));
  EXPECT_EQ(sizeof(uapi::DiscardParams), sizeof(ublk_param_discard));
  EXPECT_EQ(offsetof(uapi::DiscardParams, max_write_zeroes_sectors),
            offsetof(ublk_param_discard, max_write_zeroes_sectors));
  EXPECT_EQ(offsetof(uapi::DiscardParams, max_segments), offsetof(ublk_param_discard, max_discard_segments));
  EXPECT_EQ(offsetof(uapi::Params, basic), offsetof(ublk_params, basic));
  EXPECT_EQ(offsetof(uapi::Params, discard), offsetof(ublk_params, discard));
}

TEST(UblkUapi, ValuesAreTheHeaders) {
  EXPECT_EQ(uapi::result_request, UBLK_IO_RES_OK);
  EXPECT_EQ(uapi::result_abort, UBLK_IO_RES_ABORT);
  EXPECT_EQ(uapi::queue_depth_max, static_cast<unsigned>(UBLK_MAX_QUEUE_DEPTH));
  EXPECT_EQ(static_cast<int>(uapi::DeviceState::live), UBLK_S_DEV_LIVE);
  EXPECT_EQ(static_cast<int>(uapi::DeviceState::dead), UBLK_S_DEV_DEAD);
  EXPECT_EQ(static_cast<int>(uapi::DeviceState::quiesced), UBLK_S_DEV_QUIESCED);
  EXPECT_EQ(uapi::attribute_volatile_cache, static_cast<unsigned>(UBLK_ATTR_VOLATILE_CACHE));
  EXPECT_EQ(uapi::attribute_fua, static_cast<unsigned>(UBLK_ATTR_FUA));
  EXPECT_EQ(uapi::params_basic, static_cast<unsigned>(UBLK_PARAM_TYPE_BASIC));
  EXPECT_EQ(uapi::params_discard, static_cast<unsigned>(UBLK_PARAM_TYPE_DISCARD));
  EXPECT_EQ(static_cast<int>(uapi::Op::read), UBLK_IO_OP_READ);
  EXPECT_EQ(static_cast<int>(uapi::Op::write), UBLK_IO_OP_WRITE);
  EXPECT_EQ(static_cast<int>(uapi::Op::flush), UBLK_IO_OP_FLUSH);
  EXPECT_EQ(static_cast<int>(uapi::Op::discard), UBLK_IO_OP_DISCARD);
  EXPECT_EQ(static_cast<int>(uapi::Op::write_zeroes), UBLK_IO_OP_WRITE_ZEROES);
  EXPECT_EQ(uapi::flag_fua, static_cast<unsigned>(UBLK_IO_F_FUA));
}

}  // namespace
}  // namespace twinloft::repl::ublk
